// GgufBuilder: writes GGUF files for tests, right by default and wrong where a test says so.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace polysil {

template <typename T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::string GgufString(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

class GgufBuilder final {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;       // how data is laid out; say so with U32("general.alignment", ...)
  int64_t tensors_claimed = -1;  // -1: as many as there are
  int64_t keys_claimed = -1;

  // Any key; `value` is what follows the type. A key given again replaces the first, in its place.
  GgufBuilder& Key(std::string_view key, uint32_t type, std::string value) {
    for (auto& entry : keys_) {
      if (entry.key == key) {
        entry = {std::string(key), type, std::move(value)};
        return *this;
      }
    }
    return AppendKey(key, type, std::move(value));
  }
  GgufBuilder& AppendKey(std::string_view key, uint32_t type, std::string value) {
    keys_.push_back({std::string(key), type, std::move(value)});
    return *this;
  }
  GgufBuilder& RemoveKey(std::string_view key) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.key == key; });
    return *this;
  }
  GgufBuilder& U32(std::string_view key, uint32_t value) { return Key(key, 4, Raw(value)); }
  GgufBuilder& F32(std::string_view key, float value) { return Key(key, 6, Raw(value)); }
  GgufBuilder& Bool(std::string_view key, bool value) { return Key(key, 7, Raw(value)); }
  GgufBuilder& String(std::string_view key, std::string_view value) {
    return Key(key, 8, GgufString(value));
  }
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string out = Raw<uint32_t>(8) + Raw<uint64_t>(values.size());
    for (const std::string& value : values) out += GgufString(value);
    return Key(key, 9, out);
  }
  template <typename T>
  GgufBuilder& Numbers(std::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string out = Raw(type) + Raw<uint64_t>(values.size());
    for (const T value : values) out += Raw(value);
    return Key(key, 9, out);
  }

  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // fastest first
    uint32_t type = 0;
    std::string data;
    int64_t offset = -1;  // -1: where it lies
  };
  GgufBuilder& Add(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // float32, filled with small numbers.
  GgufBuilder& Floats(std::string_view name, std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    std::string data;
    for (uint64_t i = 0; i < count; ++i) {
      data += Raw(0.01F * static_cast<float>((i * 7 + tensors_.size() * 13) % 41) - 0.2F);
    }
    return Add({std::string(name), std::move(dims), 0, std::move(data)});
  }
  Tensor* Find(std::string_view name) {
    for (Tensor& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  GgufBuilder& RemoveTensor(std::string_view name) {
    std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
    return *this;
  }

  // Header, metadata and tensor list, without data.
  std::string Head() const {
    std::string out = "GGUF" + Raw(version);
    out += Raw<uint64_t>(tensors_claimed >= 0 ? tensors_claimed : tensors_.size());
    out += Raw<uint64_t>(keys_claimed >= 0 ? keys_claimed : keys_.size());
    for (const auto& [key, type, value] : keys_) out += GgufString(key) + Raw(type) + value;
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      out += GgufString(tensor.name) + Raw<uint32_t>(tensor.dims.size());
      for (const uint64_t dim : tensor.dims) out += Raw(dim);
      out += Raw(tensor.type);
      out += Raw<uint64_t>(tensor.offset >= 0 ? tensor.offset : offset);
      offset = Aligned(offset + tensor.data.size());
    }
    return out;
  }

  std::string Build() const {
    std::string out = Head();
    out.resize(Aligned(out.size()));
    for (size_t i = 0; i < tensors_.size(); ++i) {
      out += tensors_[i].data;
      if (i + 1 < tensors_.size()) out.resize(Aligned(out.size()));
    }
    return out;
  }

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::string value;
  };

  uint64_t Aligned(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::vector<Entry> keys_;
  std::vector<Tensor> tensors_;
};

// A whole llama: 2 layers of width 8, 2 heads of 4, 1 KV head, 5 tokens.
inline GgufBuilder TinyLlama() {
  GgufBuilder file;
  file.String("general.architecture", "llama")
      .String("general.name", "tiny")
      .U32("llama.block_count", 2)
      .U32("llama.context_length", 64)
      .U32("llama.embedding_length", 8)
      .U32("llama.feed_forward_length", 12)
      .U32("llama.attention.head_count", 2)
      .U32("llama.attention.head_count_kv", 1)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .String("tokenizer.ggml.model", "gpt2")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "</s>"})
      .Numbers<int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3, 3})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .U32("tokenizer.ggml.bos_token_id", 3)
      .U32("tokenizer.ggml.eos_token_id", 4)
      .Floats("token_embd.weight", {8, 5})
      .Floats("output_norm.weight", {8})
      .Floats("output.weight", {8, 5});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    file.Floats(prefix + "attn_norm.weight", {8})
        .Floats(prefix + "attn_q.weight", {8, 8})
        .Floats(prefix + "attn_k.weight", {8, 4})
        .Floats(prefix + "attn_v.weight", {8, 4})
        .Floats(prefix + "attn_output.weight", {8, 8})
        .Floats(prefix + "ffn_norm.weight", {8})
        .Floats(prefix + "ffn_gate.weight", {8, 12})
        .Floats(prefix + "ffn_up.weight", {8, 12})
        .Floats(prefix + "ffn_down.weight", {12, 8});
  }
  return file;
}

}  // namespace polysil

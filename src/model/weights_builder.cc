#include "model/weights_builder.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace polysil {
namespace {

float FloatFromHalf(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

std::string ShapeText(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

// The alignment that kernels may rely on (see ModelWeights).
size_t AlignmentOf(DType dtype) {
  return dtype == DType::kF32 ? 4 : 2;
}

class Builder final {
 public:
  Builder(const ModelSpec& spec, const TensorNames& names, std::span<const FileTensor> tensors)
      : spec_(spec), names_(names) {
    for (const FileTensor& tensor : tensors) tensors_.emplace(tensor.name, &tensor);
  }

  StatusOr<BuiltWeights> Build(const std::function<bool(std::string_view)>& ignorable) {
    ModelWeights& weights = built_.weights;
    const int64_t hidden = spec_.hidden_size;
    ASSIGN_OR_RETURN(weights.embedding, Matrix(names_.embedding, spec_.vocab_size, hidden));
    ASSIGN_OR_RETURN(weights.output_norm, Vector(names_.output_norm, ".weight", hidden));
    if (spec_.tied_embedding) {
      weights.output = weights.embedding;
    } else {
      ASSIGN_OR_RETURN(weights.output, Matrix(names_.output, spec_.vocab_size, hidden));
    }
    for (int32_t layer = 0; layer < spec_.layer_count(); ++layer) {
      prefix_ = fmt::format("{}{}.", names_.layer_prefix, layer);
      LayerWeights& out = weights.layers.emplace_back();
      RETURN_IF_ERROR(BuildAttention(out));
      RETURN_IF_ERROR(BuildFfn(out));
      RETURN_IF_ERROR(BuildNorms(out));
    }
    for (const auto& [name, tensor] : tensors_) {
      if (!taken_.contains(name) && !ignorable(name)) {
        return Unimplemented("tensor {} {} has no place in a {} model of {} layers", name,
                             ShapeText(tensor->shape), spec_.architecture, spec_.layer_count());
      }
    }
    return std::move(built_);
  }

 private:
  Status BuildAttention(LayerWeights& out) {
    const int64_t hidden = spec_.hidden_size;
    const int64_t q_rows = int64_t{spec_.q_heads} * spec_.head_size;
    const int64_t kv_rows = int64_t{spec_.kv_heads} * spec_.head_size;
    if (names_.qkv.empty()) {
      ASSIGN_OR_RETURN(out.q, LayerMatrix(names_.q, q_rows, hidden));
      ASSIGN_OR_RETURN(out.k, LayerMatrix(names_.k, kv_rows, hidden));
      ASSIGN_OR_RETURN(out.v, LayerMatrix(names_.v, kv_rows, hidden));
    } else {
      ASSIGN_OR_RETURN(const HostTensor fused,
                       LayerMatrix(names_.qkv, q_rows + 2 * kv_rows, hidden));
      out.q = Rows(fused, 0, q_rows);
      out.k = Rows(fused, q_rows, kv_rows);
      out.v = Rows(fused, q_rows + kv_rows, kv_rows);
    }
    if (spec_.qkv_bias) {
      ASSIGN_OR_RETURN(out.q_bias, LayerVector(names_.q, ".bias", q_rows));
      ASSIGN_OR_RETURN(out.k_bias, LayerVector(names_.k, ".bias", kv_rows));
      ASSIGN_OR_RETURN(out.v_bias, LayerVector(names_.v, ".bias", kv_rows));
    }
    ASSIGN_OR_RETURN(out.attention_output, LayerMatrix(names_.attention_output, hidden, q_rows));
    if (spec_.attention_output_bias) {
      ASSIGN_OR_RETURN(out.attention_output_bias,
                       LayerVector(names_.attention_output, ".bias", hidden));
    }
    return OkStatus();
  }

  Status BuildFfn(LayerWeights& out) {
    const int64_t hidden = spec_.hidden_size;
    const int64_t ffn = spec_.ffn_size;
    if (names_.gate_up.empty()) {
      ASSIGN_OR_RETURN(out.gate, LayerMatrix(names_.gate, ffn, hidden));
      ASSIGN_OR_RETURN(out.up, LayerMatrix(names_.up, ffn, hidden));
    } else {
      ASSIGN_OR_RETURN(const HostTensor fused, LayerMatrix(names_.gate_up, 2 * ffn, hidden));
      out.gate = Rows(fused, 0, ffn);
      out.up = Rows(fused, ffn, ffn);
    }
    ASSIGN_OR_RETURN(out.down, LayerMatrix(names_.down, hidden, ffn));
    if (spec_.ffn_bias) {
      ASSIGN_OR_RETURN(out.gate_bias, LayerVector(names_.gate, ".bias", ffn));
      ASSIGN_OR_RETURN(out.up_bias, LayerVector(names_.up, ".bias", ffn));
      ASSIGN_OR_RETURN(out.down_bias, LayerVector(names_.down, ".bias", hidden));
    }
    return OkStatus();
  }

  Status BuildNorms(LayerWeights& out) {
    const int64_t hidden = spec_.hidden_size;
    ASSIGN_OR_RETURN(out.attention_norm, LayerVector(names_.attention_norm, ".weight", hidden));
    ASSIGN_OR_RETURN(out.ffn_norm, LayerVector(names_.ffn_norm, ".weight", hidden));
    if (spec_.qk_norm) {
      ASSIGN_OR_RETURN(out.q_norm, LayerVector(names_.q_norm, ".weight", spec_.head_size));
      ASSIGN_OR_RETURN(out.k_norm, LayerVector(names_.k_norm, ".weight", spec_.head_size));
    }
    if (spec_.post_norms) {
      ASSIGN_OR_RETURN(out.post_attention_norm,
                       LayerVector(names_.post_attention_norm, ".weight", hidden));
      ASSIGN_OR_RETURN(out.post_ffn_norm, LayerVector(names_.post_ffn_norm, ".weight", hidden));
    }
    return OkStatus();
  }

  StatusOr<HostTensor> LayerMatrix(std::string_view role, int64_t rows, int64_t cols) {
    return Matrix(prefix_ + std::string(role), rows, cols);
  }

  StatusOr<std::vector<float>> LayerVector(std::string_view role, std::string_view kind,
                                           int64_t size) {
    return Vector(prefix_ + std::string(role), kind, size);
  }

  StatusOr<const FileTensor*> Take(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return InvalidArgument("tensor {} is missing", name);
    taken_.insert(found->first);
    return found->second;
  }

  StatusOr<std::vector<float>> Vector(std::string_view role, std::string_view kind, int64_t size) {
    ASSIGN_OR_RETURN(const FileTensor* tensor, Take(std::string(role) + std::string(kind)));
    return ToFloats(*tensor, size);
  }

  StatusOr<HostTensor> Matrix(std::string_view role, int64_t rows, int64_t cols) {
    ASSIGN_OR_RETURN(const FileTensor* tensor, Take(std::string(role) + ".weight"));
    if (!tensor->dtype) {
      return Unimplemented("tensor {} has type {}, which is not supported", tensor->name,
                           tensor->type_name);
    }
    if (tensor->shape.size() != 2 || tensor->shape[0] != rows || tensor->shape[1] != cols) {
      return InvalidArgument("tensor {} has shape {}, the model needs [{}, {}]", tensor->name,
                             ShapeText(tensor->shape), rows, cols);
    }
    HostTensor out{*tensor->dtype, rows, cols, tensor->data.data()};
    if (reinterpret_cast<uintptr_t>(out.data) % AlignmentOf(out.dtype) != 0) {
      const auto& copy = built_.copies.emplace_back(tensor->data.begin(), tensor->data.end());
      out.data = copy.data();
    }
    return out;
  }

  static HostTensor Rows(const HostTensor& fused, int64_t begin, int64_t rows) {
    const DTypeInfo& info = Info(fused.dtype);
    const int64_t row_bytes = fused.cols / info.values_per_block * info.bytes_per_block;
    return {fused.dtype, rows, fused.cols, fused.data + begin * row_bytes};
  }

  const ModelSpec& spec_;
  const TensorNames& names_;
  std::map<std::string_view, const FileTensor*> tensors_;
  std::set<std::string_view> taken_;
  std::string prefix_;  // "blk.3."
  BuiltWeights built_;
};

Status CheckRange(std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgument("{} is {}, not {} to {}", what, value, least, most);
}

Status CheckNumber(std::string_view what, double value, double least, double most) {
  if (value >= least && value <= most) return OkStatus();  // false for NaN
  return InvalidArgument("{} is {}, not {} to {}", what, value, least, most);
}

}  // namespace

TensorListing ToListing(const FileTensor& tensor) {
  return {std::string(tensor.name), std::string(tensor.type_name), tensor.shape,
          static_cast<int64_t>(tensor.data.size())};
}

StatusOr<BuiltWeights> BuildWeights(const ModelSpec& spec, const TensorNames& names,
                                    std::span<const FileTensor> tensors,
                                    const std::function<bool(std::string_view)>& ignorable) {
  return Builder(spec, names, tensors).Build(ignorable);
}

StatusOr<std::vector<float>> ToFloats(const FileTensor& tensor, int64_t size) {
  if (tensor.shape.size() != 1 || tensor.shape[0] != size) {
    return InvalidArgument("tensor {} has shape {}, the model needs [{}]", tensor.name,
                           ShapeText(tensor.shape), size);
  }
  std::vector<float> out(size);
  if (tensor.dtype == DType::kF32) {
    std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
    return out;
  }
  if (tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16) {
    return Unimplemented("tensor {} has type {}; vectors are read as F32, F16 or BF16", tensor.name,
                         tensor.type_name);
  }
  for (int64_t i = 0; i < size; ++i) {
    uint16_t bits;
    std::memcpy(&bits, tensor.data.data() + i * sizeof(bits), sizeof(bits));
    out[i] = tensor.dtype == DType::kF16 ? FloatFromHalf(bits)
                                         : std::bit_cast<float>(uint32_t{bits} << 16);
  }
  return out;
}

Status CheckSpec(const ModelSpec& spec) {
  constexpr int64_t kSizeMax = 1 << 20;
  constexpr int64_t kHeadsMax = 4096;
  constexpr int64_t kHeadSizeMax = 1024;
  constexpr int64_t kVocabMax = 1 << 24;
  constexpr int64_t kContextMax = 1 << 24;
  RETURN_IF_ERROR(CheckRange("the hidden size", spec.hidden_size, 1, kSizeMax));
  RETURN_IF_ERROR(CheckRange("the feed-forward size", spec.ffn_size, 1, kSizeMax));
  RETURN_IF_ERROR(CheckRange("the vocabulary size", spec.vocab_size, 1, kVocabMax));
  RETURN_IF_ERROR(CheckRange("the number of query heads", spec.q_heads, 1, kHeadsMax));
  RETURN_IF_ERROR(CheckRange("the number of KV heads", spec.kv_heads, 1, spec.q_heads));
  RETURN_IF_ERROR(CheckRange("the head size", spec.head_size, 1, kHeadSizeMax));
  RETURN_IF_ERROR(CheckRange("the context length", spec.context_tokens_max, 1, kContextMax));
  if (spec.q_heads % spec.kv_heads != 0) {
    return InvalidArgument("{} query heads cannot be shared evenly by {} KV heads", spec.q_heads,
                           spec.kv_heads);
  }
  RETURN_IF_ERROR(CheckNumber("the norm epsilon", spec.norm_eps, 0.0, 1.0));
  RETURN_IF_ERROR(CheckNumber("the attention scale", spec.attention_scale, 1e-6, 1e6));
  RETURN_IF_ERROR(CheckNumber("the attention soft cap", spec.attention_softcap, 0.0, 1e6));
  RETURN_IF_ERROR(CheckNumber("the logit soft cap", spec.logit_softcap, 0.0, 1e6));
  RETURN_IF_ERROR(CheckNumber("the embedding scale", spec.embedding_scale, 1e-6, 1e6));
  for (const RopeSpec& rope : spec.ropes) {
    RETURN_IF_ERROR(CheckRange("the rotated part of a head", rope.dims, 2, spec.head_size));
  }
  for (const LayerSpec& layer : spec.layers) {
    RETURN_IF_ERROR(CheckRange("a layer's window", layer.window, 0, kContextMax));
    RETURN_IF_ERROR(CheckRange("a layer's rope", layer.rope_index, 0,
                               static_cast<int64_t>(spec.ropes.size()) - 1));
  }
  return OkStatus();
}

}  // namespace polysil

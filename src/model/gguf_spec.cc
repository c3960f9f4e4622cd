#include "model/gguf_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "model/rope.h"

namespace polysil {
namespace {

constexpr int64_t kLayersMax = 1024;
constexpr int32_t kGemma2WindowDefault = 4096;
constexpr int32_t kGemma3PatternDefault = 6;  // one layer in six sees everything
constexpr double kGemma3LocalBaseDefault = 10000.0;

enum class Family { kLlama, kQwen2, kQwen3, kGemma2, kGemma3, kPhi3 };

std::optional<Family> FamilyOf(std::string_view architecture) {
  constexpr std::array<std::pair<std::string_view, Family>, 6> kFamilies = {{
      {"llama", Family::kLlama},
      {"qwen2", Family::kQwen2},
      {"qwen3", Family::kQwen3},
      {"gemma2", Family::kGemma2},
      {"gemma3", Family::kGemma3},
      {"phi3", Family::kPhi3},
  }};
  for (const auto& [name, family] : kFamilies) {
    if (name == architecture) return family;
  }
  return std::nullopt;
}

TensorNames NamesOf(Family family) {
  TensorNames names{
      .embedding = "token_embd",
      .output = "output",
      .output_norm = "output_norm",
      .layer_prefix = "blk.",
      .q = "attn_q",
      .k = "attn_k",
      .v = "attn_v",
      .attention_output = "attn_output",
      .gate = "ffn_gate",
      .up = "ffn_up",
      .down = "ffn_down",
      .attention_norm = "attn_norm",
      .q_norm = "attn_q_norm",
      .k_norm = "attn_k_norm",
      .post_attention_norm = "post_attention_norm",
      .ffn_norm = "ffn_norm",
      .post_ffn_norm = "post_ffw_norm",
  };
  if (family == Family::kPhi3) {
    names.qkv = "attn_qkv";
    names.gate_up = "ffn_up";
  }
  return names;
}

const GgufTensor* FindTensor(const GgufFile& file, std::string_view name) {
  const auto tensors = file.tensors();
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const GgufTensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

FileTensor ToFileTensor(const GgufTensor& tensor) {
  return {tensor.name, tensor.type_name, tensor.dtype,
          std::vector<int64_t>(tensor.dims.rbegin(), tensor.dims.rend()), tensor.data};
}

// Reads the keys of one architecture: "head_count" stands for "llama.attention.head_count" and so
// on.
class SpecReader final {
 public:
  SpecReader(const GgufFile& file, std::string architecture, Family family, int32_t context_tokens)
      : file_(file),
        architecture_(std::move(architecture)),
        family_(family),
        context_tokens_(context_tokens) {}

  StatusOr<ModelSpec> Read() {
    spec_.architecture = architecture_;
    RETURN_IF_ERROR(RefuseForeignKeys());
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadNumbers());
    RETURN_IF_ERROR(ReadFlags());
    RETURN_IF_ERROR(ReadRopes());
    RETURN_IF_ERROR(ReadWindows());
    RETURN_IF_ERROR(CheckSpec(spec_));
    return std::move(spec_);
  }

 private:
  std::string Key(std::string_view suffix) const {
    return fmt::format("{}.{}", architecture_, suffix);
  }

  // An integer in [least, most], or an array of one and the same (some writers list one per layer).
  StatusOr<std::optional<int64_t>> Int(std::string_view suffix, int64_t least, int64_t most) const {
    const std::string key = Key(suffix);
    const GgufValue* value = file_.Find(key);
    std::optional<int64_t> number;
    if (value != nullptr && value->type == GgufType::kArray) {
      ASSIGN_OR_RETURN(number, UniformInt(key, std::get<GgufArray>(value->value)));
    } else {
      ASSIGN_OR_RETURN(number, file_.FindInt(key));
    }
    if (number && (*number < least || *number > most)) {
      return InvalidArgument("{} is {}, not {} to {}", key, *number, least, most);
    }
    return number;
  }

  StatusOr<int64_t> UniformInt(std::string_view key, const GgufArray& array) const {
    if ((array.type != GgufType::kUint32 && array.type != GgufType::kInt32) || array.size == 0) {
      return InvalidArgument("{} is an array of {} {}, not of 32-bit integers", key, array.size,
                             Name(array.type));
    }
    const auto first = NumberAt<int32_t>(array, 0);
    for (int64_t i = 1; i < array.size; ++i) {
      if (NumberAt<int32_t>(array, i) != first) {
        return Unimplemented("{} differs by layer ({} and {}), which is not supported", key, first,
                             NumberAt<int32_t>(array, i));
      }
    }
    return int64_t{first};
  }

  StatusOr<int32_t> RequiredInt(std::string_view suffix, int64_t most) const {
    ASSIGN_OR_RETURN(const std::optional<int64_t> number, Int(suffix, 1, most));
    if (!number) return InvalidArgument("{} is missing", Key(suffix));
    return static_cast<int32_t>(*number);
  }

  StatusOr<int32_t> IntOr(std::string_view suffix, int32_t otherwise) const {
    ASSIGN_OR_RETURN(const std::optional<int64_t> number,
                     Int(suffix, 0, std::numeric_limits<int32_t>::max()));
    return static_cast<int32_t>(number.value_or(otherwise));
  }

  StatusOr<double> FloatOr(std::string_view suffix, double otherwise) const {
    ASSIGN_OR_RETURN(const std::optional<double> number, file_.FindFloat(Key(suffix)));
    if (number && !std::isfinite(*number)) {
      return InvalidArgument("{} is {}, not a finite number", Key(suffix), *number);
    }
    return number.value_or(otherwise);
  }

  // Keys that change what is computed, in ways that only architectures not in this file have.
  Status RefuseForeignKeys() const {
    for (const std::string_view suffix :
         {"expert_count", "expert_used_count", "attention.q_lora_rank", "attention.kv_lora_rank",
          "leading_dense_block_count", "ssm.inner_size", "nextn_predict_layers"}) {
      ASSIGN_OR_RETURN(const int32_t count, IntOr(suffix, 0));
      if (count != 0) return Unimplemented("{} is {}, which is not supported", Key(suffix), count);
    }
    for (const std::string_view suffix : {"logit_scale", "residual_scale", "embedding_scale"}) {
      ASSIGN_OR_RETURN(const double scale, FloatOr(suffix, 1.0));
      if (scale != 1.0)
        return Unimplemented("{} is {}, which is not supported", Key(suffix), scale);
    }
    for (const std::string_view suffix :
         {"attention.max_alibi_bias", "attention.clamp_kqv", "router_logit_softcapping"}) {
      ASSIGN_OR_RETURN(const double value, FloatOr(suffix, 0.0));
      if (value != 0.0)
        return Unimplemented("{} is {}, which is not supported", Key(suffix), value);
    }
    ASSIGN_OR_RETURN(const std::optional<bool> causal, file_.FindBool(Key("attention.causal")));
    if (causal == false) return Unimplemented("{} is false", Key("attention.causal"));
    ASSIGN_OR_RETURN(const std::optional<bool> parallel,
                     file_.FindBool(Key("use_parallel_residual")));
    if (parallel == true) return Unimplemented("{} is true", Key("use_parallel_residual"));
    return OkStatus();
  }

  Status ReadSizes() {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    ASSIGN_OR_RETURN(const int32_t layers, RequiredInt("block_count", kLayersMax));
    spec_.layers.resize(layers);
    ASSIGN_OR_RETURN(spec_.context_tokens_max, RequiredInt("context_length", kMax));
    ASSIGN_OR_RETURN(spec_.hidden_size, RequiredInt("embedding_length", kMax));
    ASSIGN_OR_RETURN(spec_.ffn_size, RequiredInt("feed_forward_length", kMax));
    ASSIGN_OR_RETURN(spec_.q_heads, RequiredInt("attention.head_count", kMax));
    ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads,
                     Int("attention.head_count_kv", 1, kMax));
    spec_.kv_heads = static_cast<int32_t>(kv_heads.value_or(spec_.q_heads));
    RETURN_IF_ERROR(ReadHeadSize());
    return ReadVocabularySize();
  }

  Status ReadHeadSize() {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    ASSIGN_OR_RETURN(const std::optional<int64_t> key_length, Int("attention.key_length", 1, kMax));
    ASSIGN_OR_RETURN(const std::optional<int64_t> value_length,
                     Int("attention.value_length", 1, kMax));
    if (key_length) {
      spec_.head_size = static_cast<int32_t>(*key_length);
    } else if (spec_.hidden_size % spec_.q_heads == 0) {
      spec_.head_size = spec_.hidden_size / spec_.q_heads;
    } else {
      return InvalidArgument("{} is missing, and {} {} is not a multiple of {} {}",
                             Key("attention.key_length"), Key("embedding_length"),
                             spec_.hidden_size, Key("attention.head_count"), spec_.q_heads);
    }
    if (value_length.value_or(spec_.head_size) != spec_.head_size) {
      return Unimplemented("{} is {}, unlike the key's {}, which is not supported",
                           Key("attention.value_length"), *value_length, spec_.head_size);
    }
    return OkStatus();
  }

  // The rows of the embedding decide; the metadata must agree where it speaks.
  Status ReadVocabularySize() {
    const GgufTensor* embedding = FindTensor(file_, "token_embd.weight");
    if (embedding == nullptr) return InvalidArgument("tensor token_embd.weight is missing");
    const int64_t rows = embedding->dims.size() == 2 ? embedding->dims[1] : 0;
    if (rows < 1 || rows > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("tensor token_embd.weight has no rows to look tokens up in");
    }
    spec_.vocab_size = static_cast<int32_t>(rows);
    ASSIGN_OR_RETURN(const int32_t stated, IntOr("vocab_size", spec_.vocab_size));
    if (stated != spec_.vocab_size) {
      return InvalidArgument("{} is {}, but tensor token_embd.weight has {} rows",
                             Key("vocab_size"), stated, spec_.vocab_size);
    }
    return OkStatus();
  }

  Status ReadNumbers() {
    ASSIGN_OR_RETURN(const double eps, FloatOr("attention.layer_norm_rms_epsilon", -1.0));
    if (eps < 0.0) return InvalidArgument("{} is missing", Key("attention.layer_norm_rms_epsilon"));
    spec_.norm_eps = static_cast<float>(eps);
    ASSIGN_OR_RETURN(const double scale, FloatOr("attention.scale", DefaultAttentionScale()));
    spec_.attention_scale = static_cast<float>(scale);
    const bool gemma2 = family_ == Family::kGemma2;
    ASSIGN_OR_RETURN(const double softcap, FloatOr("attn_logit_softcapping", gemma2 ? 50.0 : 0.0));
    spec_.attention_softcap = static_cast<float>(softcap);
    ASSIGN_OR_RETURN(const double final_softcap,
                     FloatOr("final_logit_softcapping", gemma2 ? 30.0 : 0.0));
    spec_.logit_softcap = static_cast<float>(final_softcap);
    return OkStatus();
  }

  // GGUF has no key for gemma's query scale. The largest models of both generations, known by their
  // layers, take hidden_size / heads; all others the head size.
  double DefaultAttentionScale() const {
    const bool largest = (family_ == Family::kGemma2 && spec_.layer_count() == 46) ||
                         (family_ == Family::kGemma3 && spec_.layer_count() == 62);
    const double size =
        largest ? static_cast<double>(spec_.hidden_size) / spec_.q_heads : spec_.head_size;
    return 1.0 / std::sqrt(size);
  }

  Status ReadFlags() {
    const bool gemma = family_ == Family::kGemma2 || family_ == Family::kGemma3;
    spec_.tied_embedding = FindTensor(file_, "output.weight") == nullptr;
    spec_.qk_norm = family_ == Family::kQwen3 || family_ == Family::kGemma3;
    spec_.post_norms = gemma;
    spec_.activation = gemma ? Activation::kGeluTanh : Activation::kSilu;
    if (gemma) spec_.embedding_scale = std::sqrt(static_cast<float>(spec_.hidden_size));
    // The metadata does not speak of biases: the tensors do.
    spec_.qkv_bias = family_ == Family::kQwen2 || FindTensor(file_, "blk.0.attn_q.bias") != nullptr;
    spec_.attention_output_bias = FindTensor(file_, "blk.0.attn_output.bias") != nullptr;
    spec_.ffn_bias = FindTensor(file_, "blk.0.ffn_gate.bias") != nullptr;
    return OkStatus();
  }

  Status ReadRopes() {
    RopeParams params;
    // The writers of llama files permute the rows of q and k so that neighbours turn together.
    params.pairing = family_ == Family::kLlama ? RopePairing::kAdjacent : RopePairing::kHalves;
    ASSIGN_OR_RETURN(params.dims, IntOr("rope.dimension_count", spec_.head_size));
    if (params.dims < 2 || params.dims > spec_.head_size) {
      return InvalidArgument("{} is {}, not 2 to the head size {}", Key("rope.dimension_count"),
                             params.dims, spec_.head_size);
    }
    ASSIGN_OR_RETURN(params.base, FloatOr("rope.freq_base", 10000.0));
    RopeParams local = params;
    RETURN_IF_ERROR(ReadScaling(params));
    RETURN_IF_ERROR(ReadFactorTensors(params));
    ASSIGN_OR_RETURN(spec_.ropes.emplace_back(), BuildRope(params));
    if (family_ == Family::kGemma3) {  // layers with a window turn faster and are not stretched
      ASSIGN_OR_RETURN(local.base, FloatOr("rope.freq_base_swa", kGemma3LocalBaseDefault));
      ASSIGN_OR_RETURN(spec_.ropes.emplace_back(), BuildRope(local));
    }
    return OkStatus();
  }

  Status ReadScaling(RopeParams& params) const {
    ASSIGN_OR_RETURN(const std::optional<std::string_view> type,
                     file_.FindString(Key("rope.scaling.type")));
    ASSIGN_OR_RETURN(const double legacy, FloatOr("rope.scale_linear", 0.0));
    ASSIGN_OR_RETURN(const double factor, FloatOr("rope.scaling.factor", legacy));
    if (type) {
      StatusOr<RopeScaling> scaling = RopeScalingFromName(*type);
      if (!scaling.ok()) {
        return Unimplemented("{} is \"{}\", which is not supported", Key("rope.scaling.type"),
                             *type);
      }
      params.scaling = *scaling;
    } else if (factor != 0.0 && factor != 1.0) {
      params.scaling = RopeScaling::kLinear;  // what a bare factor means
    }
    if (params.scaling == RopeScaling::kLlama3) {
      return Unimplemented("{} is \"llama3\"; GGUF has the tensor rope_freqs.weight for it",
                           Key("rope.scaling.type"));
    }
    if (params.scaling == RopeScaling::kLinear) params.factor = factor == 0.0 ? 1.0 : factor;
    ASSIGN_OR_RETURN(params.magnitude, FloatOr("rope.scaling.attn_factor", 1.0));
    return OkStatus();
  }

  // Frequency factors, one per pair: llama3's, or longrope's two lists.
  Status ReadFactorTensors(RopeParams& params) const {
    const GgufTensor* plain = FindTensor(file_, "rope_freqs.weight");
    const GgufTensor* for_short = FindTensor(file_, "rope_factors_short.weight");
    const GgufTensor* for_long = FindTensor(file_, "rope_factors_long.weight");
    if (plain == nullptr && for_short == nullptr && for_long == nullptr) {
      if (params.scaling == RopeScaling::kFactors) {
        return InvalidArgument("{} is longrope, but tensor rope_factors_short.weight is missing",
                               Key("rope.scaling.type"));
      }
      return OkStatus();
    }
    if (params.scaling == RopeScaling::kLinear) {
      return InvalidArgument("{} is linear, but there are tensors of frequency factors",
                             Key("rope.scaling.type"));
    }
    params.scaling = RopeScaling::kFactors;
    const GgufTensor* chosen = plain;
    if (plain == nullptr) {
      if (for_short == nullptr || for_long == nullptr) {
        return InvalidArgument(
            "of rope_factors_short.weight and rope_factors_long.weight, one is "
            "missing");
      }
      ASSIGN_OR_RETURN(const int32_t original, IntOr("rope.scaling.original_context_length", 0));
      if (original == 0) {
        return InvalidArgument("{} is missing", Key("rope.scaling.original_context_length"));
      }
      chosen = ServedContext() > original ? for_long : for_short;
    }
    ASSIGN_OR_RETURN(params.factors, ToFloats(ToFileTensor(*chosen), params.dims / 2));
    return OkStatus();
  }

  int32_t ServedContext() const {
    return context_tokens_ > 0 ? context_tokens_ : spec_.context_tokens_max;
  }

  Status ReadWindows() {
    const int32_t otherwise = family_ == Family::kGemma2 ? kGemma2WindowDefault : 0;
    ASSIGN_OR_RETURN(const int32_t window, IntOr("attention.sliding_window", otherwise));
    const bool narrows = window > 0 && window < spec_.context_tokens_max;
    switch (family_) {
      case Family::kLlama:
      case Family::kQwen2:
      case Family::kQwen3:
        if (narrows) {
          return Unimplemented("{} is {}, which is not supported", Key("attention.sliding_window"),
                               window);
        }
        return OkStatus();
      case Family::kPhi3:
        for (LayerSpec& layer : spec_.layers) layer.window = narrows ? window : 0;
        return OkStatus();
      case Family::kGemma2:
        for (size_t i = 0; i < spec_.layers.size(); i += 2) {
          spec_.layers[i].window = narrows ? window : 0;
        }
        return OkStatus();
      case Family::kGemma3:
        return ReadGemma3Pattern(window, narrows);
    }
    return OkStatus();
  }

  // Layers with a window take the local rope, whether or not the window is shorter than the
  // context.
  Status ReadGemma3Pattern(int32_t window, bool narrows) {
    if (window == 0) return InvalidArgument("{} is missing", Key("attention.sliding_window"));
    const std::string key = Key("attention.sliding_window_pattern");
    const GgufValue* value = file_.Find(key);
    const GgufArray* flags = nullptr;
    int32_t pattern = kGemma3PatternDefault;
    if (value != nullptr && value->type == GgufType::kArray) {
      ASSIGN_OR_RETURN(flags, file_.FindArray(key, GgufType::kBool));
      if (flags->size < spec_.layer_count()) {
        return InvalidArgument("{} has {} entries for {} layers", key, flags->size,
                               spec_.layer_count());
      }
    } else {
      ASSIGN_OR_RETURN(pattern, IntOr("attention.sliding_window_pattern", pattern));
      if (pattern < 1) return InvalidArgument("{} is {}, not 1 or more", key, pattern);
    }
    for (int32_t i = 0; i < spec_.layer_count(); ++i) {
      const bool local =
          flags != nullptr ? flags->numbers[i] == std::byte{1} : (i + 1) % pattern != 0;
      if (!local) continue;
      spec_.layers[i].window = narrows ? window : 0;
      spec_.layers[i].rope_index = 1;
    }
    return OkStatus();
  }

  const GgufFile& file_;
  const std::string architecture_;
  const Family family_;
  const int32_t context_tokens_;
  ModelSpec spec_;
};

}  // namespace

StatusOr<GgufModel> ReadGgufModel(const GgufFile& file, int32_t context_tokens) {
  ASSIGN_OR_RETURN(const std::optional<std::string_view> architecture,
                   file.FindString("general.architecture"));
  if (!architecture) return InvalidArgument("general.architecture is missing");
  const std::optional<Family> family = FamilyOf(*architecture);
  if (!family) {
    return Unimplemented(
        "general.architecture is \"{}\"; llama, qwen2, qwen3, gemma2, gemma3 and "
        "phi3 are supported",
        ToText(*file.Find("general.architecture"), 64));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> shards, file.FindInt("split.count"));
  if (shards.value_or(1) > 1) {
    return Unimplemented(
        "split.count is {}: the file is one part of a split model; join the parts "
        "into one file",
        *shards);
  }
  GgufModel model;
  ASSIGN_OR_RETURN(model.spec,
                   SpecReader(file, std::string(*architecture), *family, context_tokens).Read());
  model.names = NamesOf(*family);
  return model;
}

std::vector<FileTensor> ToFileTensors(const GgufFile& file) {
  std::vector<FileTensor> tensors;
  for (const GgufTensor& tensor : file.tensors()) tensors.push_back(ToFileTensor(tensor));
  return tensors;
}

}  // namespace polysil

#include "model/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "model/json_fields.h"
#include "model/rope.h"

namespace polysil {
namespace {

constexpr int32_t kIntMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kLayersMax = 1024;
constexpr int32_t kWindowDefault = 4096;  // of mistral and gemma, where the key is absent

enum class Family { kLlama, kMistral, kQwen2, kQwen3, kGemma2, kGemma3, kPhi3 };

std::optional<Family> FamilyOf(std::string_view model_type) {
  constexpr std::array<std::pair<std::string_view, Family>, 7> kFamilies = {{
      {"llama", Family::kLlama},
      {"mistral", Family::kMistral},
      {"qwen2", Family::kQwen2},
      {"qwen3", Family::kQwen3},
      {"gemma2", Family::kGemma2},
      {"gemma3_text", Family::kGemma3},
      {"phi3", Family::kPhi3},
  }};
  for (const auto& [name, family] : kFamilies) {
    if (name == model_type) return family;
  }
  return std::nullopt;
}

TensorNames NamesOf(Family family) {
  TensorNames names{
      .embedding = "model.embed_tokens",
      .output = "lm_head",
      .output_norm = "model.norm",
      .layer_prefix = "model.layers.",
      .q = "self_attn.q_proj",
      .k = "self_attn.k_proj",
      .v = "self_attn.v_proj",
      .attention_output = "self_attn.o_proj",
      .gate = "mlp.gate_proj",
      .up = "mlp.up_proj",
      .down = "mlp.down_proj",
      .attention_norm = "input_layernorm",
      .q_norm = "self_attn.q_norm",
      .k_norm = "self_attn.k_norm",
      .ffn_norm = "post_attention_layernorm",
  };
  if (family == Family::kPhi3) {
    names.qkv = "self_attn.qkv_proj";
    names.gate_up = "mlp.gate_up_proj";
  }
  if (family == Family::kGemma2 || family == Family::kGemma3) {
    names.post_attention_norm = "post_attention_layernorm";
    names.ffn_norm = "pre_feedforward_layernorm";
    names.post_ffn_norm = "post_feedforward_layernorm";
  }
  return names;
}

class ConfigReader final {
 public:
  ConfigReader(const boost::json::object& object, std::string model_type, Family family,
               int32_t context_tokens)
      : config_(object), family_(family), context_tokens_(context_tokens) {
    spec_.architecture = std::move(model_type);
  }

  StatusOr<ModelSpec> Read() {
    RETURN_IF_ERROR(RefuseForeignKeys());
    RETURN_IF_ERROR(ReadSizes());
    RETURN_IF_ERROR(ReadNumbers());
    RETURN_IF_ERROR(ReadActivation());
    RETURN_IF_ERROR(ReadFlags());
    RETURN_IF_ERROR(ReadWindows());
    RETURN_IF_ERROR(ReadRopes());
    RETURN_IF_ERROR(CheckSpec(spec_));
    return std::move(spec_);
  }

 private:
  bool IsGemma() const { return family_ == Family::kGemma2 || family_ == Family::kGemma3; }

  StatusOr<double> NumberOr(std::string_view key, double otherwise) const {
    ASSIGN_OR_RETURN(const std::optional<double> number, config_.Number(key));
    return number.value_or(otherwise);
  }
  StatusOr<bool> BoolOr(std::string_view key, bool otherwise) const {
    ASSIGN_OR_RETURN(const std::optional<bool> flag, config_.Bool(key));
    return flag.value_or(otherwise);
  }

  Status RefuseForeignKeys() const {
    if (config_.Find("quantization_config") != nullptr) {
      return Unimplemented(
          "quantization_config is set; only plain weights are read from "
          "safetensors");
    }
    for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts",
                                       "q_lora_rank", "kv_lora_rank", "num_kv_shared_layers"}) {
      ASSIGN_OR_RETURN(const std::optional<int64_t> count, config_.Int(key, 0, kIntMax));
      if (count.value_or(0) != 0)
        return Unimplemented("{} is {}, which is not supported", key, *count);
    }
    ASSIGN_OR_RETURN(const bool bidirectional, BoolOr("use_bidirectional_attention", false));
    if (bidirectional) return Unimplemented("use_bidirectional_attention is true");
    return RefuseOtherHeads();
  }

  // "architectures" names what the weights were made for: not a classifier or an embedder.
  Status RefuseOtherHeads() const {
    ASSIGN_OR_RETURN(const boost::json::array* names, config_.Array("architectures"));
    if (names == nullptr) return OkStatus();
    for (const boost::json::value& name : *names) {
      const std::string_view text =
          name.is_string() ? std::string_view(name.get_string().data(), name.get_string().size())
                           : std::string_view();
      if (!text.ends_with("ForCausalLM")) {
        return Unimplemented(
            "architectures names \"{}\", which is not a language model "
            "(...ForCausalLM)",
            text.substr(0, 64));
      }
    }
    return OkStatus();
  }

  Status ReadSizes() {
    ASSIGN_OR_RETURN(spec_.vocab_size, config_.RequiredInt("vocab_size", kIntMax));
    ASSIGN_OR_RETURN(spec_.hidden_size, config_.RequiredInt("hidden_size", kIntMax));
    ASSIGN_OR_RETURN(spec_.ffn_size, config_.RequiredInt("intermediate_size", kIntMax));
    ASSIGN_OR_RETURN(spec_.q_heads, config_.RequiredInt("num_attention_heads", kIntMax));
    ASSIGN_OR_RETURN(spec_.context_tokens_max,
                     config_.RequiredInt("max_position_embeddings", kIntMax));
    ASSIGN_OR_RETURN(const int32_t layers, config_.RequiredInt("num_hidden_layers", kLayersMax));
    spec_.layers.resize(layers);
    ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads,
                     config_.Int("num_key_value_heads", 1, kIntMax));
    spec_.kv_heads = static_cast<int32_t>(kv_heads.value_or(spec_.q_heads));
    ASSIGN_OR_RETURN(const std::optional<int64_t> head_dim, config_.Int("head_dim", 1, kIntMax));
    if (head_dim) {
      spec_.head_size = static_cast<int32_t>(*head_dim);
    } else if (spec_.hidden_size % spec_.q_heads == 0) {
      spec_.head_size = spec_.hidden_size / spec_.q_heads;
    } else {
      return InvalidArgument(
          "head_dim is missing, and hidden_size {} is not a multiple of "
          "num_attention_heads {}",
          spec_.hidden_size, spec_.q_heads);
    }
    return OkStatus();
  }

  Status ReadNumbers() {
    ASSIGN_OR_RETURN(const double eps, NumberOr("rms_norm_eps", 1e-6));
    spec_.norm_eps = static_cast<float>(eps);
    double scale_size = spec_.head_size;
    if (IsGemma()) {
      ASSIGN_OR_RETURN(scale_size, NumberOr("query_pre_attn_scalar", 256.0));
      if (!(scale_size > 0.0)) {
        return InvalidArgument("query_pre_attn_scalar is {}, not above 0", scale_size);
      }
      // Null means none; absent means the default of the family.
      const bool gemma2 = family_ == Family::kGemma2;
      ASSIGN_OR_RETURN(const double softcap,
                       SoftCap("attn_logit_softcapping", gemma2 ? 50.0 : 0.0));
      ASSIGN_OR_RETURN(const double final_softcap,
                       SoftCap("final_logit_softcapping", gemma2 ? 30.0 : 0.0));
      spec_.attention_softcap = static_cast<float>(softcap);
      spec_.logit_softcap = static_cast<float>(final_softcap);
      spec_.embedding_scale = std::sqrt(static_cast<float>(spec_.hidden_size));
      spec_.norm_weight_offset = 1.0F;
    }
    spec_.attention_scale = static_cast<float>(1.0 / std::sqrt(scale_size));
    return OkStatus();
  }

  StatusOr<double> SoftCap(std::string_view key, double otherwise) const {
    if (config_.IsNull(key)) return 0.0;
    return NumberOr(key, otherwise);
  }

  Status ReadActivation() {
    // Gemma's hidden_act is a leftover that its code does not read.
    const std::string_view key = IsGemma() ? "hidden_activation" : "hidden_act";
    const std::string_view wanted = IsGemma() ? "gelu_pytorch_tanh" : "silu";
    spec_.activation = IsGemma() ? Activation::kGeluTanh : Activation::kSilu;
    ASSIGN_OR_RETURN(const std::optional<std::string> name, config_.String(key));
    if (name && *name != wanted) {
      return Unimplemented("{} is \"{}\"; a {} model has \"{}\"", key, name->substr(0, 64),
                           spec_.architecture, wanted);
    }
    return OkStatus();
  }

  Status ReadFlags() {
    ASSIGN_OR_RETURN(spec_.tied_embedding, BoolOr("tie_word_embeddings", IsGemma()));
    ASSIGN_OR_RETURN(const bool attention_bias, BoolOr("attention_bias", false));
    ASSIGN_OR_RETURN(spec_.ffn_bias, BoolOr("mlp_bias", false));
    spec_.qkv_bias = attention_bias || family_ == Family::kQwen2;
    spec_.attention_output_bias = attention_bias && family_ != Family::kQwen2;
    spec_.qk_norm = family_ == Family::kQwen3 || family_ == Family::kGemma3;
    spec_.post_norms = IsGemma();
    if (family_ == Family::kPhi3 && (attention_bias || spec_.ffn_bias)) {
      return Unimplemented("attention_bias or mlp_bias is true in a phi3 model");
    }
    return OkStatus();
  }

  // Which layers see only a window: an explicit list, or the rule of the family.
  Status ReadWindows() {
    ASSIGN_OR_RETURN(const std::optional<int64_t> stated,
                     config_.Int("sliding_window", 0, kIntMax));
    int64_t window = stated.value_or(0);
    if ((family_ == Family::kMistral || IsGemma()) && !stated &&
        !config_.IsNull("sliding_window")) {
      window = kWindowDefault;
    }
    if (family_ == Family::kQwen2 || family_ == Family::kQwen3) {
      ASSIGN_OR_RETURN(const bool used, BoolOr("use_sliding_window", false));
      if (!used) window = 0;
    }
    ASSIGN_OR_RETURN(const boost::json::array* types, config_.Array("layer_types"));
    if (types != nullptr && static_cast<int32_t>(types->size()) != spec_.layer_count()) {
      return InvalidArgument("layer_types has {} entries for {} layers", types->size(),
                             spec_.layer_count());
    }
    ASSIGN_OR_RETURN(const std::vector<bool> by_rule, LocalByRule());
    for (int32_t i = 0; i < spec_.layer_count(); ++i) {
      bool local = by_rule[i];
      if (types != nullptr) {
        ASSIGN_OR_RETURN(local, LocalByType((*types)[i], i));
      }
      // A windowless model has its layers called "sliding" at times; a window needs a number.
      if (!local || (window == 0 && !IsGemma())) continue;
      if (window == 0) return InvalidArgument("sliding_window is missing");
      spec_.layers[i].rope_index = family_ == Family::kGemma3 ? 1 : 0;
      if (window < spec_.context_tokens_max) {
        spec_.layers[i].window = static_cast<int32_t>(window);
      }
    }
    return OkStatus();
  }

  StatusOr<bool> LocalByType(const boost::json::value& type, int32_t layer) const {
    if (type == "full_attention") return false;
    if (type == "sliding_attention") return true;
    return Unimplemented("layer_types entry {} is neither full_attention nor sliding_attention",
                         layer);
  }

  StatusOr<std::vector<bool>> LocalByRule() const {
    std::vector<bool> local(spec_.layers.size());
    ASSIGN_OR_RETURN(const std::optional<int64_t> pattern,
                     config_.Int("sliding_window_pattern", 1, kIntMax));
    ASSIGN_OR_RETURN(const std::optional<int64_t> from,
                     config_.Int("max_window_layers", 0, kIntMax));
    for (int64_t i = 0; i < static_cast<int64_t>(local.size()); ++i) {
      switch (family_) {
        case Family::kLlama:
          local[i] = false;
          break;
        case Family::kMistral:
        case Family::kPhi3:
          local[i] = true;
          break;
        case Family::kQwen2:
        case Family::kQwen3:
          local[i] = i >= from.value_or(28);
          break;
        case Family::kGemma2:
          local[i] = i % 2 == 0;
          break;
        case Family::kGemma3:
          local[i] = (i + 1) % pattern.value_or(6) != 0;
          break;
      }
    }
    return local;
  }

  // Old configs have rope_theta and rope_scaling at the top; newer ones rope_parameters, for gemma3
  // one per kind of layer.
  Status ReadRopes() {
    ASSIGN_OR_RETURN(const double base,
                     NumberOr("rope_theta", family_ == Family::kGemma3 ? 1e6 : 1e4));
    ASSIGN_OR_RETURN(const double local_base, NumberOr("rope_local_base_freq", 1e4));
    ASSIGN_OR_RETURN(const boost::json::object* parameters, config_.Object("rope_parameters"));
    ASSIGN_OR_RETURN(const boost::json::object* scaling, config_.Object("rope_scaling"));
    if (parameters != nullptr && scaling != nullptr) {
      return InvalidArgument("rope_parameters and rope_scaling are both given");
    }
    const boost::json::object* global = parameters != nullptr ? parameters : scaling;
    const boost::json::object* local = nullptr;
    std::string path = parameters != nullptr ? "rope_parameters." : "rope_scaling.";
    if (family_ == Family::kGemma3 && parameters != nullptr) {
      const JsonFields kinds(*parameters, path);
      ASSIGN_OR_RETURN(global, kinds.Object("full_attention"));
      ASSIGN_OR_RETURN(local, kinds.Object("sliding_attention"));
      if (global == nullptr || local == nullptr) {
        return InvalidArgument("rope_parameters lacks full_attention or sliding_attention");
      }
    }
    ASSIGN_OR_RETURN(spec_.ropes.emplace_back(), ReadRope(base, global, path));
    if (family_ == Family::kGemma3) {
      ASSIGN_OR_RETURN(spec_.ropes.emplace_back(), ReadRope(local_base, local, path));
    }
    return OkStatus();
  }

  StatusOr<RopeSpec> ReadRope(double base, const boost::json::object* object, std::string path) {
    static const boost::json::object kNothing;
    const JsonFields fields(object != nullptr ? *object : kNothing, std::move(path));
    RopeParams params;
    ASSIGN_OR_RETURN(const std::optional<double> own_base, fields.Number("rope_theta"));
    params.base = own_base.value_or(base);
    ASSIGN_OR_RETURN(params.dims, RotatedDims(fields));
    RETURN_IF_ERROR(ReadScaling(fields, params));
    return BuildRope(params);
  }

  StatusOr<int32_t> RotatedDims(const JsonFields& fields) const {
    ASSIGN_OR_RETURN(std::optional<double> part, config_.Number("partial_rotary_factor"));
    ASSIGN_OR_RETURN(const std::optional<double> own, fields.Number("partial_rotary_factor"));
    if (own) part = own;
    const double factor = part.value_or(1.0);
    if (!(factor > 0.0) || factor > 1.0) {
      return InvalidArgument("partial_rotary_factor is {}, not above 0 and up to 1", factor);
    }
    if (factor != 1.0 && family_ != Family::kPhi3) {
      return Unimplemented("partial_rotary_factor is {} in a {} model", factor, spec_.architecture);
    }
    return static_cast<int32_t>(spec_.head_size * factor);
  }

  Status ReadScaling(const JsonFields& fields, RopeParams& params) const {
    ASSIGN_OR_RETURN(std::optional<std::string> type, fields.String("rope_type"));
    ASSIGN_OR_RETURN(const std::optional<std::string> old_type, fields.String("type"));
    if (type && old_type && *type != *old_type && *old_type != "su") {
      return InvalidArgument("{} is \"{}\", but {} is \"{}\"", fields.Path("rope_type"),
                             type->substr(0, 64), fields.Path("type"), old_type->substr(0, 64));
    }
    if (!type) type = old_type;
    if (!type) {
      if (fields.Find("factor") != nullptr || fields.Find("short_factor") != nullptr) {
        return InvalidArgument("{} is missing", fields.Path("rope_type"));
      }
      return OkStatus();
    }
    StatusOr<RopeScaling> scaling = RopeScalingFromName(*type);
    if (!scaling.ok()) {
      return Unimplemented("{} is \"{}\", which is not supported", fields.Path("rope_type"),
                           type->substr(0, 64));
    }
    params.scaling = *scaling;
    if (params.scaling == RopeScaling::kNone) return OkStatus();
    if (params.scaling == RopeScaling::kFactors) return ReadLongRope(fields, params);
    ASSIGN_OR_RETURN(const std::optional<double> factor, fields.Number("factor"));
    if (!factor) return InvalidArgument("{} is missing", fields.Path("factor"));
    params.factor = *factor;
    if (params.scaling == RopeScaling::kLinear) return OkStatus();
    for (const auto& [key, target] :
         {std::pair("low_freq_factor", &params.low_frequency_factor),
          std::pair("high_freq_factor", &params.high_frequency_factor),
          std::pair("original_max_position_embeddings", &params.original_context)}) {
      ASSIGN_OR_RETURN(const std::optional<double> number, fields.Number(key));
      if (!number) return InvalidArgument("{} is missing", fields.Path(key));
      *target = *number;
    }
    return OkStatus();
  }

  // phi3: one list of factors for contexts as first trained, one for longer ones. The reference
  // picks by the length of each sequence, which changes the keys already cached; we pick once, by
  // the context that is served.
  Status ReadLongRope(const JsonFields& fields, RopeParams& params) const {
    if (family_ != Family::kPhi3) {
      return Unimplemented("longrope in a {} model is not supported", spec_.architecture);
    }
    for (const std::string_view key : {"short_mscale", "long_mscale"}) {
      if (fields.Find(key) != nullptr) return Unimplemented("{} is set", fields.Path(key));
    }
    ASSIGN_OR_RETURN(const std::optional<int64_t> top,
                     config_.Int("original_max_position_embeddings", 1, kIntMax));
    ASSIGN_OR_RETURN(const std::optional<int64_t> own,
                     fields.Int("original_max_position_embeddings", 1, kIntMax));
    if (!top && !own) return InvalidArgument("original_max_position_embeddings is missing");
    const auto original = static_cast<double>(top ? *top : *own);
    const int32_t served = context_tokens_ > 0 ? context_tokens_ : spec_.context_tokens_max;
    const std::string_view key = served > original ? "long_factor" : "short_factor";
    ASSIGN_OR_RETURN(const boost::json::array* factors, fields.Array(key));
    if (factors == nullptr) return InvalidArgument("{} is missing", fields.Path(key));
    for (const boost::json::value& factor : *factors) {
      if (!factor.is_number()) return InvalidArgument("{} holds no numbers", fields.Path(key));
      params.factors.push_back(factor.to_number<float>());
    }
    ASSIGN_OR_RETURN(const std::optional<double> factor, fields.Number("factor"));
    ASSIGN_OR_RETURN(const std::optional<double> magnitude, fields.Number("attention_factor"));
    params.magnitude = magnitude.value_or(
        LongRopeMagnitude(factor.value_or(spec_.context_tokens_max / original), original));
    return OkStatus();
  }

  const JsonFields config_;
  const Family family_;
  const int32_t context_tokens_;
  ModelSpec spec_;
};

}  // namespace

StatusOr<HfModel> ReadHfModel(std::string_view config_json, int32_t context_tokens) {
  ASSIGN_OR_RETURN(const boost::json::object object, ParseJsonObject(config_json, "config.json"));
  const JsonFields config(object);
  ASSIGN_OR_RETURN(const std::optional<std::string> type, config.String("model_type"));
  if (!type) return InvalidArgument("model_type is missing");
  const std::optional<Family> family = FamilyOf(*type);
  if (!family) {
    return Unimplemented(
        "model_type is \"{}\"; llama, mistral, qwen2, qwen3, gemma2, gemma3_text "
        "and phi3 are supported",
        type->substr(0, 64));
  }
  HfModel model;
  ASSIGN_OR_RETURN(model.spec, ConfigReader(object, *type, *family, context_tokens).Read());
  model.names = NamesOf(*family);
  return model;
}

std::string HfModelType(std::string_view config_json) {
  const StatusOr<boost::json::object> object = ParseJsonObject(config_json, "config.json");
  if (!object.ok()) return "";
  const StatusOr<std::optional<std::string>> type = JsonFields(*object).String("model_type");
  return type.ok() ? type->value_or("") : "";
}

}  // namespace polysil

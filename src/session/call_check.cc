#include "session/call_check.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace polysil {
namespace {

template <typename... Args>
Status FieldError(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  return WithField(InvalidArgument(format, std::forward<Args>(args)...), field);
}

// NaN is in no range.
Status CheckRange(std::string_view field, float value, float min, float max) {
  if (value >= min && value <= max) return OkStatus();
  return FieldError(field, "{} is {}; it must be between {} and {}", field, value, min, max);
}

Status CheckCount(std::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return OkStatus();
  return FieldError(field, "{} is {}; it must be between {} and {}", field, value, min, max);
}

Status CheckTokenId(std::string_view field, TokenId id, int32_t vocab_size) {
  if (id >= 0 && id < vocab_size) return OkStatus();
  return FieldError(field, "{} has token id {}; the vocabulary has ids 0 to {}", field, id,
                    vocab_size - 1);
}

Status CheckLogitBias(const SamplingParams& sampling, const TextLimits& limits,
                      int32_t vocab_size) {
  const auto& biases = sampling.logit_bias;
  if (biases.size() > static_cast<size_t>(limits.logit_bias_max)) {
    return FieldError("logit_bias", "logit_bias has {} entries; at most {} are allowed",
                      biases.size(), limits.logit_bias_max);
  }
  for (size_t i = 0; i < biases.size(); ++i) {
    RETURN_IF_ERROR(CheckTokenId("logit_bias", biases[i].first, vocab_size));
    if (i > 0 && biases[i].first <= biases[i - 1].first) {
      return FieldError("logit_bias", "logit_bias has token id {} twice", biases[i].first);
    }
    if (!(std::abs(biases[i].second) <= 100.0F)) {
      return FieldError("logit_bias",
                        "logit_bias of token id {} is {}; it must be between -100 and 100",
                        biases[i].first, biases[i].second);
    }
  }
  return OkStatus();
}

Status CheckSampling(const SamplingParams& sampling, const TextLimits& limits, int32_t vocab_size) {
  RETURN_IF_ERROR(CheckRange("temperature", sampling.temperature, 0.0F, 2.0F));
  if (!(sampling.top_p > 0.0F && sampling.top_p <= 1.0F)) {
    return FieldError("top_p", "top_p is {}; it must be above 0 and at most 1", sampling.top_p);
  }
  if (sampling.top_k < -1) {
    return FieldError("top_k", "top_k is {}; it must be -1 or 0 (off) or positive", sampling.top_k);
  }
  RETURN_IF_ERROR(CheckRange("min_p", sampling.min_p, 0.0F, 1.0F));
  RETURN_IF_ERROR(CheckRange("repetition_penalty", sampling.repetition_penalty, 0.01F, 100.0F));
  RETURN_IF_ERROR(CheckRange("presence_penalty", sampling.presence_penalty, -2.0F, 2.0F));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", sampling.frequency_penalty, -2.0F, 2.0F));
  RETURN_IF_ERROR(CheckLogitBias(sampling, limits, vocab_size));
  if (sampling.logprobs) {
    RETURN_IF_ERROR(CheckCount("logprobs", *sampling.logprobs, 0, limits.logprobs_max));
  }
  return OkStatus();
}

Status CheckLengths(const TextCall& call) {
  const int32_t tokens_min = call.sampling.tokens_min;
  if (tokens_min < 0) {
    return FieldError("min_tokens", "min_tokens is {}; it must not be negative", tokens_min);
  }
  if (!call.tokens_max) return OkStatus();
  if (*call.tokens_max < 0 || (*call.tokens_max == 0 && !call.echo)) {
    return FieldError("max_tokens", "max_tokens is {}; it must be at least 1{}", *call.tokens_max,
                      *call.tokens_max == 0 ? ", or 0 with echo" : "");
  }
  if (tokens_min > *call.tokens_max) {
    return FieldError("min_tokens", "min_tokens is {}, more than max_tokens, which is {}",
                      tokens_min, *call.tokens_max);
  }
  return OkStatus();
}

Status CheckStop(const StopRules& stop, const TextLimits& limits, int32_t vocab_size) {
  if (stop.strings.size() > static_cast<size_t>(limits.stops_max)) {
    return FieldError("stop", "stop has {} strings; at most {} are allowed", stop.strings.size(),
                      limits.stops_max);
  }
  for (const std::string& string : stop.strings) {
    if (string.empty()) return FieldError("stop", "stop has an empty string");
    if (string.size() > static_cast<size_t>(limits.stop_bytes_max)) {
      return FieldError("stop", "stop has a string of {} bytes; at most {} are allowed",
                        string.size(), limits.stop_bytes_max);
    }
  }
  if (stop.token_ids.size() > static_cast<size_t>(limits.stop_token_ids_max)) {
    return FieldError("stop_token_ids", "stop_token_ids has {} ids; at most {} are allowed",
                      stop.token_ids.size(), limits.stop_token_ids_max);
  }
  for (const TokenId id : stop.token_ids) {
    RETURN_IF_ERROR(CheckTokenId("stop_token_ids", id, vocab_size));
  }
  return OkStatus();
}

Status CheckKeep(const std::vector<KeepPrefix>& keep) {
  constexpr double kSecondsMax = static_cast<double>(kRetentionNsMax) / 1e9;
  if (keep.size() > static_cast<size_t>(kRetentionHintsMax)) {
    return FieldError("cache_retention", "cache_retention has {} entries; at most {} are allowed",
                      keep.size(), kRetentionHintsMax);
  }
  for (const KeepPrefix& prefix : keep) {
    if (prefix.tokens && *prefix.tokens < 1) {
      return FieldError("cache_retention", "cache_retention has tokens {}; it must be at least 1",
                        *prefix.tokens);
    }
    if (!(prefix.seconds >= 1e-3 && prefix.seconds <= kSecondsMax)) {
      return FieldError("cache_retention",
                        "cache_retention has seconds {}; it must be between 0.001 and {}",
                        prefix.seconds, kSecondsMax);
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckCall(const TextCall& call, const TextLimits& limits, const RequestLimits& engine) {
  if (call.prompts.empty()) return FieldError("prompt", "prompt is an empty list");
  if (call.prompts.size() > static_cast<size_t>(limits.prompts_max)) {
    return FieldError("prompt", "prompt has {} entries; at most {} are allowed",
                      call.prompts.size(), limits.prompts_max);
  }
  const int64_t prompts = static_cast<int64_t>(call.prompts.size());
  RETURN_IF_ERROR(CheckCount("n", call.sequences, 1, engine.sequences_max));
  if (prompts * call.sequences > limits.sequences_max) {
    return FieldError("n", "{} prompts with n {} make {} outputs; at most {} are allowed", prompts,
                      call.sequences, prompts * call.sequences, limits.sequences_max);
  }
  RETURN_IF_ERROR(CheckCount("priority", call.priority, limits.priority_min, limits.priority_max));
  RETURN_IF_ERROR(CheckSampling(call.sampling, limits, engine.vocab_size));
  RETURN_IF_ERROR(CheckLengths(call));
  RETURN_IF_ERROR(CheckStop(call.stop, limits, engine.vocab_size));
  return CheckKeep(call.keep);
}

Status CheckPromptIds(std::span<const TokenId> ids, std::string_view field,
                      const RequestLimits& engine) {
  if (ids.empty()) return FieldError(field, "{} is empty: it gives no token", field);
  for (const TokenId id : ids) RETURN_IF_ERROR(CheckTokenId(field, id, engine.vocab_size));
  const int64_t room = std::min<int64_t>(engine.context_tokens_max, engine.kv_tokens_max);
  if (static_cast<int64_t>(ids.size()) >= room) {
    return WithReason(
        FieldError(field,
                   "{} has {} tokens; the context of {} tokens leaves no room for an output token",
                   field, ids.size(), room),
        "context_length_exceeded");
  }
  return OkStatus();
}

}  // namespace polysil

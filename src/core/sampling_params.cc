#include "polysil/core/sampling_params.h"

#include <cmath>

namespace polysil {
namespace {

constexpr int32_t kLogprobsMax = 20;

// False for NaN too.
bool Within(float value, float low, float high) {
  return value >= low && value <= high;
}

Status ValidateRanges(const SamplingParams& params) {
  if (!Within(params.temperature, 0.0F, 2.0F)) {
    return InvalidArgument("temperature is {}, must lie in [0, 2]", params.temperature);
  }
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F)) {
    return InvalidArgument("top_p is {}, must lie in (0, 1]", params.top_p);
  }
  if (params.top_k < 0) return InvalidArgument("top_k is {}, must be 0 or more", params.top_k);
  if (!Within(params.min_p, 0.0F, 1.0F)) {
    return InvalidArgument("min_p is {}, must lie in [0, 1]", params.min_p);
  }
  if (!(params.repetition_penalty > 0.0F && std::isfinite(params.repetition_penalty))) {
    return InvalidArgument("repetition_penalty is {}, must be finite and above 0",
                           params.repetition_penalty);
  }
  if (!Within(params.presence_penalty, -2.0F, 2.0F)) {
    return InvalidArgument("presence_penalty is {}, must lie in [-2, 2]", params.presence_penalty);
  }
  if (!Within(params.frequency_penalty, -2.0F, 2.0F)) {
    return InvalidArgument("frequency_penalty is {}, must lie in [-2, 2]",
                           params.frequency_penalty);
  }
  return OkStatus();
}

Status ValidateCounts(const SamplingParams& params) {
  if (params.tokens_max < 1) {
    return InvalidArgument("tokens_max is {}, must be 1 or more", params.tokens_max);
  }
  if (params.tokens_min < 0 || params.tokens_min > params.tokens_max) {
    return InvalidArgument("tokens_min is {}, must lie between 0 and tokens_max {}",
                           params.tokens_min, params.tokens_max);
  }
  if (params.logprobs && (*params.logprobs < 0 || *params.logprobs > kLogprobsMax)) {
    return InvalidArgument("logprobs is {}, must lie in [0, {}]", *params.logprobs, kLogprobsMax);
  }
  if (params.prompt_logprobs &&
      (*params.prompt_logprobs < 0 || *params.prompt_logprobs > kLogprobsMax)) {
    return InvalidArgument("prompt_logprobs is {}, must lie in [0, {}]", *params.prompt_logprobs,
                           kLogprobsMax);
  }
  return OkStatus();
}

Status ValidateBias(const SamplingParams& params, int32_t vocab_size) {
  TokenId previous = -1;
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("logit_bias names token {}, the vocabulary has {}", id, vocab_size);
    }
    if (id <= previous) {
      return InvalidArgument("logit_bias names token {} after {}, ids must rise", id, previous);
    }
    if (!Within(bias, -100.0F, 100.0F)) {
      return InvalidArgument("logit_bias of token {} is {}, must lie in [-100, 100]", id, bias);
    }
    previous = id;
  }
  return OkStatus();
}

}  // namespace

Status Validate(const SamplingParams& params, int32_t vocab_size) {
  RETURN_IF_ERROR(ValidateRanges(params));
  RETURN_IF_ERROR(ValidateCounts(params));
  return ValidateBias(params, vocab_size);
}

}  // namespace polysil

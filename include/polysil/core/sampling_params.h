// SamplingParams: how the next token is chosen. A value; checked by Validate at the door.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"

namespace polysil {

struct SamplingParams {
  float temperature = 1.0F;         // [0, 2]; 0 is greedy: the highest logit, lowest id on ties
  float top_p = 1.0F;               // (0, 1]
  int32_t top_k = 0;                // 0: off
  float min_p = 0.0F;               // [0, 1]: keep p >= min_p * p_max
  float repetition_penalty = 1.0F;  // > 0; over prompt and output
  float presence_penalty = 0.0F;    // [-2, 2]; over output
  float frequency_penalty = 0.0F;   // [-2, 2]; over output
  std::vector<std::pair<TokenId, float>> logit_bias;  // rising ids, each bias in [-100, 100]
  uint64_t seed = 0;                       // draws depend on (seed, sequence index, position) alone
  int32_t tokens_max = 16;                 // at most this many output tokens; >= 1
  int32_t tokens_min = 0;                  // end tokens cannot be chosen before this many
  std::optional<int32_t> logprobs;         // how many alternatives besides the chosen; 0..20
  std::optional<int32_t> prompt_logprobs;  // the same for the prompt's tokens; bars cache hits
};

// A sentence naming the first field out of range. vocab_size bounds the ids.
Status Validate(const SamplingParams& params, int32_t vocab_size);

}  // namespace polysil

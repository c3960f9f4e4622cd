// Request: one client call as the engine sees it: token ids in, no text. Immutable once submitted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/sampling_params.h"

namespace polysil {

// A wish: the KV of the prompt's first `tokens` tokens stays findable for so long after the last
// request that used it. Several make ranges: [0, 100) for an hour, [100, 900) for a minute. What
// exceeds the share that one cache_salt has of the pool is not kept, and running sequences come
// before all of it.
struct RetentionHint {
  int32_t tokens = 0;   // >= 1; more than the prompt has: all of it
  int64_t keep_ns = 0;  // (0, kRetentionNsMax]
};

inline constexpr int32_t kRetentionHintsMax = 8;
inline constexpr int64_t kRetentionNsMax = 86'400'000'000'000;  // a day

struct Request {
  RequestId id;                 // set by the engine on Submit
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  int32_t sequences = 1;                 // n: independent outputs of the same prompt
  std::vector<TokenId> end_token_ids;    // choosing one ends the sequence; sorted; may be empty
  int64_t deadline_ns = 0;               // on the engine's clock; 0: none
  int32_t priority = 0;                  // higher runs first
  std::string cache_salt;                // prefixes are shared only between equal salts
  std::vector<RetentionHint> retention;  // at most kRetentionHintsMax
  std::string tenant;  // whose share of the service it takes; those without a name are one tenant
};

struct RequestLimits {
  int32_t vocab_size = 0;
  int32_t context_tokens_max = 0;  // prompt and output together
  int64_t kv_tokens_max = 0;       // tokens the KV pool can hold at once
  int32_t sequences_max = 0;       // n at most this
};

// What can never be served, as INVALID_ARGUMENT with the values: ids outside the vocabulary, an
// empty prompt, a prompt that leaves no room for one output token, more than the KV pool can ever
// hold.
Status Validate(const Request& request, const RequestLimits& limits);

}  // namespace polysil

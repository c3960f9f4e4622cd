// Request: one client call as the engine sees it: token ids in, no text. Immutable once submitted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/sampling_params.h"

namespace polysil {

struct Request {
  RequestId id;                 // set by the engine on Submit
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  int32_t sequences = 1;               // n: independent outputs of the same prompt
  std::vector<TokenId> end_token_ids;  // choosing one ends the sequence; sorted; may be empty
  int64_t deadline_ns = 0;             // on the engine's clock; 0: none
  int32_t priority = 0;                // higher runs first
  std::string cache_salt;              // prefixes are shared only between equal salts
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

// LoadOptions: what load to put on which server. A value; checked by Validate.
#pragma once

#include <cstdint>
#include <string>

#include "polysil/base/status.h"

namespace polysil {

// More requests than this are never sent in one run: what is kept of each stays below 1 GiB.
inline constexpr int64_t kLoadRequestsMax = 1'000'000;

struct LoadOptions {
  std::string url;    // "http://127.0.0.1:8080", with or without /v1
  std::string model;  // empty: the first that the server lists
  std::string api_key;
  bool chat = false;  // /v1/chat/completions instead of /v1/completions

  // Arrivals. One of rate, concurrency and trace_path is set.
  double rate = 0.0;        // an open loop: sessions a second
  double burstiness = 1.0;  // of the open loop; see Arrivals
  int32_t concurrency = 0;  // a closed loop: so many sessions at once
  std::string trace_path;   // as recorded; see sim/trace.h
  double speed = 1.0;       // of the recording
  int64_t requests = 0;     // at most so many sessions; 0: 100, or the whole trace, or no limit
  double duration_s = 0.0;  // sessions begin only this long; 0: no limit

  // Prompts. At most one of prompts_path and input_tokens, neither with a trace.
  std::string prompts_path;  // JSONL with "turns", "prompt" or "text"
  int32_t input_tokens = 0;  // random words; 0: 128
  int32_t shared_prefix_tokens = 0;
  int32_t turns = 1;  // requests of one session, each with the conversation so far
  int32_t output_tokens = 128;
  bool stop_at_end = false;  // an end token ends an answer; else it has output_tokens tokens

  int32_t cancel_after_tokens = 0;  // the client leaves after so many; 0: never
  double cancel_share = 1.0;        // of the requests
  double ttft_limit_ms = 0.0;       // of a good request; 0: no limit
  double tpot_limit_ms = 0.0;
  double timeout_s = 600.0;
  uint64_t seed = 1;
};

// INVALID_ARGUMENT: a sentence that names the flag.
Status Validate(const LoadOptions& options);

}  // namespace polysil

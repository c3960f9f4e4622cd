// CallRecord: what happened to one request of a load. Times are nanoseconds after the beginning of
// the load. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace polysil {

enum class CallOutcome {
  kOk,
  kCancelled,  // by this client, as planned
  kFailed,
};

struct CallRecord {
  int64_t session = 0;
  int32_t turn = 0;
  int64_t due_ns = 0;   // as scheduled; in a closed loop, when its place was free
  int64_t sent_ns = 0;  // written to the connection
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
  int64_t end_ns = 0;
  int32_t input_tokens = 0;   // as the server counts them; 0: it does not say
  int32_t output_tokens = 0;  // as the server counts them, or events with a token
  int32_t cached_tokens = 0;
  bool has_usage = false;
  std::vector<float> gaps_ms;  // between events with a token
  CallOutcome outcome = CallOutcome::kOk;
  std::string finish_reason;
  std::string error_kind;  // few different ones: "http 429", "connect"; empty unless kFailed
  std::string error;       // a sentence with the values

  double lag_ms() const { return static_cast<double>(sent_ns - due_ns) / 1e6; }
  // Latencies count from when the request was due.
  double ttft_ms() const { return static_cast<double>(first_token_ns - due_ns) / 1e6; }
  double e2el_ms() const { return static_cast<double>(end_ns - due_ns) / 1e6; }
  // Of the tokens after the first; 0 where there are none.
  double tpot_ms() const {
    return output_tokens > 1
               ? static_cast<double>(last_token_ns - first_token_ns) / 1e6 / (output_tokens - 1)
               : 0.0;
  }
};

}  // namespace polysil

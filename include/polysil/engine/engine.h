// Engine: what the faces (gRPC, HTTP) see. Token ids in, token ids out; no text, no blocks, no
// steps. All methods are thread-safe and none blocks on the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "polysil/base/check.h"
#include "polysil/base/status.h"
#include "polysil/core/kv_event.h"
#include "polysil/core/request.h"
#include "polysil/core/step.h"
#include "polysil/engine/latency.h"

namespace polysil {

enum class FinishReason {
  kStop,       // an end token was chosen, or the edge found a stop string
  kLength,     // tokens_max or the context limit
  kCancelled,  // Cancel, a drain deadline
  kDeadline,   // Request::deadline_ns passed
  kError,      // see SequenceOutput::status
};

struct OutputToken {
  TokenId id = 0;
  std::optional<TokenLogprobs> logprobs;
};

// Most outputs bring one.
using OutputTokens = absl::InlinedVector<OutputToken, 1>;

// Some news of one sequence. The last one has `finish` set; each sequence gets exactly one such.
struct SequenceOutput {
  RequestId request;
  int32_t sequence_index = 0;
  OutputTokens tokens;                         // in order; an end token is included as the last
  std::vector<TokenLogprobs> prompt_logprobs;  // whole, once, with the first output of a sequence
  std::optional<FinishReason> finish;
  Status status;                     // not OK with kError
  int32_t prompt_tokens_cached = 0;  // taken from the prefix cache instead of computed
  SequenceLatency latency;           // up to this output
};

// Receives the outputs of one request, on the engine's output thread. Must not block.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void OnOutput(SequenceOutput output) = 0;
};

struct EngineInfo {
  RequestLimits limits;
  std::string numeric_class;
};

// Cumulative histogram: counts[i] observations <= bounds[i]; the last count has no bound.
struct Histogram {
  absl::InlinedVector<double, 16> bounds;
  absl::InlinedVector<uint64_t, 16> counts;  // bounds.size() + 1, not cumulative
  double sum = 0.0;

  void Observe(double value) {
    CHECK(counts.size() == bounds.size() + 1, "{} counts for {} bounds", counts.size(),
          bounds.size());
    ++counts[static_cast<size_t>(std::ranges::lower_bound(bounds, value) - bounds.begin())];
    sum += value;
  }
};

struct EngineStats {
  int64_t requests_running = 0;
  int64_t requests_waiting = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;        // referenced by a sequence
  int64_t kv_blocks_cached = 0;      // free to take, but hold a known prefix
  int64_t kv_host_blocks_total = 0;  // of the host tier
  int64_t kv_host_blocks_used = 0;   // hold a known prefix
  // By outcome: finished sequences of each FinishReason end a request once, when all have ended.
  uint64_t requests_stop = 0;
  uint64_t requests_length = 0;
  uint64_t requests_cancelled = 0;
  uint64_t requests_deadline = 0;
  uint64_t requests_error = 0;
  uint64_t requests_refused = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t prefix_cache_query_tokens = 0;
  uint64_t prefix_cache_hit_tokens = 0;
  uint64_t kv_blocks_copied_out = 0;  // to the host tier
  uint64_t kv_blocks_copied_in = 0;   // back from it
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  uint64_t step_tokens = 0;          // rows of all steps submitted
  uint64_t step_padding_tokens = 0;  // what the executor's buckets add to them
  Histogram time_to_first_token_s;
  Histogram inter_token_latency_s;
  Histogram request_duration_s;
  Histogram step_duration_s;
};

struct EngineReadiness {
  bool ready = false;
  std::string reason;  // why not
};

// Some events of the prefix cache in a row, the first of them numbered `first`; numbers rise by one
// from 1. `lost` events before it are no longer kept: whoever follows them should forget all it
// knows and note what comes.
struct KvEventBatch {
  uint64_t first = 0;
  uint64_t lost = 0;
  KvEvents news;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineInfo& info() const = 0;
  // INVALID_ARGUMENT: can never be served. RESOURCE_EXHAUSTED: the queue is full, try later.
  // UNAVAILABLE: draining or broken. After OK, each sequence gets exactly one final output.
  virtual StatusOr<RequestId> Submit(Request request, std::shared_ptr<OutputSink> sink) = 0;
  // Ends all sequences with kCancelled. Unknown or finished ids are ignored.
  virtual void Cancel(RequestId id) = 0;
  // The edge found a stop string: ends one sequence with kStop. Tokens already on their way may
  // follow.
  virtual void Stop(RequestId id, int32_t sequence_index) = 0;
  virtual EngineStats Stats() const = 0;
  virtual EngineReadiness Readiness() const = 0;
  // Events from number `from` on that are kept, at most events_max; none: there is nothing newer.
  // A number far beyond the newest is of another process: what is kept comes from its beginning.
  virtual KvEventBatch ReadKvEvents(uint64_t from, int32_t events_max) const = 0;
  // Blocks until there is an event of that number, at most so long. Gives the newest number.
  virtual uint64_t WaitKvEvent(uint64_t number, int64_t timeout_ns) const = 0;
  // Seconds after which a refused client may try again, from the measured service rate; at least 1.
  virtual int32_t RetryAfterSeconds() const = 0;
};

}  // namespace polysil

// Clients: everybody who calls the simulated engine. They submit what the workload says, go away,
// find stop strings, and hold every output against what they are owed: the tokens that the request
// gets alone, in order, and one end that has its reason. Owned by Simulation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "engine/engine_core.h"
#include "sim/latency_histogram.h"
#include "sim/sim_executor.h"
#include "sim/timeline.h"
#include "sim/violation.h"
#include "sim/workload.h"

namespace polysil {

class Clients final {
 public:
  // All must outlive it; `timeline` may be null.
  Clients(const EngineCoreOptions& engine, const SimExecutor& device, Workload& workload,
          Timeline* timeline);

  // When they act next without being told anything; kNever: not so.
  int64_t next_ns() const;
  // When the first call that lives must be ended by itself; kNever: not so.
  int64_t next_due_ns() const;
  // All that they do up to now goes into the inputs of the tick.
  void Act(int64_t now_ns, EngineInputs& inputs);
  // From now on calls are refused, at this time the rest may be cancelled.
  void OnDrain(int64_t deadline_ns) { drain_deadline_ns_ = deadline_ns; }
  // The outputs of that tick.
  void See(int64_t now_ns, const std::vector<SequenceOutput>& outputs);

  int32_t calls_live() const { return calls_live_; }
  int64_t calls_total() const { return static_cast<int64_t>(calls_.size()); }
  const std::optional<Violation>& violation() const { return violation_; }

  const LatencyHistogram& time_to_first_token() const { return time_to_first_token_; }
  const LatencyHistogram& inter_token() const { return inter_token_; }
  const LatencyHistogram& duration() const { return duration_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t output_tokens() const { return output_tokens_; }

 private:
  struct Stream {
    int32_t tokens = 0;
    int64_t last_token_ns = 0;
    bool stop_sent = false;
    bool ended = false;
    std::vector<TokenId> output;  // where the session returns
  };
  struct Call {
    SimCall call;
    int64_t arrived_ns = 0;
    Status validity;
    bool cancelled = false;
    bool had_place = false;  // when it was submitted, whatever the engine did in that tick
    int64_t steps_before = 0;
    int64_t work_before = 0;  // of all calls that had ended
    std::vector<Stream> streams;
    int32_t streams_left = 0;
  };

  template <typename... Args>
  bool Expect(bool condition, const char* check, fmt::format_string<Args...> format,
              Args&&... args) {
    if (!condition && !violation_) {
      violation_ = Violation{check, fmt::format(format, std::forward<Args>(args)...)};
    }
    return condition;
  }

  void Submit(SimCall call, int64_t now_ns, EngineInputs& inputs);
  void Cancel(RequestId id, EngineInputs& inputs);
  void SeeTokens(Call& call, Stream& stream, int64_t now_ns, const SequenceOutput& output);
  void SeeEnd(Call& call, Stream& stream, int64_t now_ns, const SequenceOutput& output);
  // What a sequence that ends so must have seen. Empty: all is well.
  std::string WrongReason(const Call& call, const Stream& stream, int64_t now_ns,
                          const SequenceOutput& output) const;
  std::string WrongError(const Call& call, const Stream& stream, const Status& status) const;
  void React(Call& call, Stream& stream, int32_t index);
  void CheckWait();
  int32_t TokensOwed(const Request& request) const;
  Call* Find(RequestId id) { return calls_[id.value - 1].get(); }

  const EngineCoreOptions engine_;
  const SimExecutor& device_;
  Workload& workload_;
  Timeline* const timeline_;
  std::vector<std::unique_ptr<Call>> calls_;                  // [request id - 1]; null: has ended
  absl::btree_set<std::pair<int64_t, RequestId>> cancels_;    // those that go away at a time
  absl::btree_set<std::pair<int64_t, RequestId>> deadlines_;  // of those that live
  // To be done with the next tick.
  std::vector<RequestId> cancels_next_;
  std::vector<SequenceStop> stops_next_;
  std::vector<RequestId> cancelled_now_;  // in the tick that runs
  std::optional<int64_t> drain_deadline_ns_;
  int32_t calls_live_ = 0;
  int32_t sequences_live_ = 0;
  // Tokens that were asked to be computed, prompts and outputs: of all calls, of those that ended.
  int64_t work_total_ = 0;
  int64_t work_ended_ = 0;
  size_t oldest_live_ = 0;  // index into calls_
  int64_t prompt_tokens_ = 0;
  int64_t output_tokens_ = 0;
  LatencyHistogram time_to_first_token_;
  LatencyHistogram inter_token_;
  LatencyHistogram duration_;
  std::optional<Violation> violation_;
};

}  // namespace polysil

// EngineCore: every decision of one replica as a state machine, Tick(now, inputs) -> actions. It
// holds no thread, clock, socket, device or random source; the same inputs give the same actions.
// Whoever drives it (EngineThread, the scenario tests, a simulator) carries its steps to an
// executor and brings the results back. Used from one thread.
//
// In a tick: step results are applied, then new requests accepted or refused, cancels and stops
// obeyed, deadlines looked at, and steps built until enough are in flight. A request that ends is
// answered in the same tick; its blocks go when no step in flight refers to them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "core/sequence.h"
#include "engine/service_rate.h"
#include "kv/kv_manager.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/step.h"
#include "polysil/engine/engine.h"
#include "sched/fcfs_policy.h"
#include "sched/scheduler.h"

namespace polysil {

struct EngineCoreOptions {
  int32_t sequences_max = 64;
  int32_t queue_max = 256;
  int64_t queue_tokens_max = 1 << 20;  // of those that wait, unless one waits alone
  bool tenants_leave_room = false;     // see EngineOptions
  int64_t itl_target_ns = 0;           // between two tokens of a sequence; 0: none
  ServiceWeights weights;
  RequestLimits limits;
  StepLimits step_limits;  // must have passed Validate
  KvOptions kv;            // but for the host tier, which step_limits describe
};

struct SubmittedRequest {
  std::shared_ptr<const Request> request;  // with its id, rising from call to call
  int64_t arrived_ns = 0;                  // when the client's call came in
};

struct SequenceStop {
  RequestId request;
  int32_t sequence_index = 0;
};

struct EngineInputs {
  std::vector<StepResult> results;  // in the order of the steps
  std::vector<SubmittedRequest> submitted;
  std::vector<RequestId> cancelled;   // ends all sequences with kCancelled; unknown ids are ignored
  std::vector<SequenceStop> stopped;  // ends one with kStop; likewise
  // Refuse requests from now on, end what is left at this time. A later one does not put it off.
  std::optional<int64_t> drain_deadline_ns;

  // It is empty then and keeps its memory.
  void Clear() {
    results.clear();
    submitted.clear();
    cancelled.clear();
    stopped.clear();
    drain_deadline_ns.reset();
  }
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct EngineActions {
  std::vector<ScheduledStep> steps;     // to be submitted, in order
  std::vector<SequenceOutput> outputs;  // in order
  int64_t wake_ns = kNever;             // tick again by then, though no input comes

  // It is empty then and keeps its memory.
  void Clear() {
    steps.clear();
    outputs.clear();
    wake_ns = kNever;
  }
};

class EngineCore final {
 public:
  explicit EngineCore(const EngineCoreOptions& options);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Takes what the inputs bring and leaves them empty. The actions are valid until the next tick;
  // what they hold may be moved out of them. So the memory of both serves every tick.
  EngineActions& Tick(int64_t now_ns, EngineInputs& inputs);

  // What the last tick changed in the prefix cache; before the first, that it is empty.
  const KvEvents& kv_events() const { return kv_.events(); }
  // Counted where things happen; the gauges are of this moment.
  EngineStats stats() const;
  const EngineCoreOptions& options() const { return options_; }
  int32_t sequences_live() const { return sequences_live_; }  // without their final output
  int32_t steps_in_flight() const { return scheduler_.steps_in_flight(); }
  // Steps that failed since one last succeeded.
  int32_t step_failures() const { return step_failures_; }
  bool draining() const { return drain_deadline_ns_.has_value(); }

  // INTERNAL where counts, lists, tables and states disagree. O(blocks + sequences).
  Status CheckIntegrity() const;

 private:
  struct LiveSequence;
  struct LiveRequest;

  void ApplyResult(StepResult& result);  // moves out of it
  Status CheckResult(const StepResult& result, std::span<const Scheduler::Row> rows) const;
  void ApplyRow(LiveSequence& live, const Scheduler::Row& row, SequenceResult& result);
  void CountPromptTokens(LiveSequence& live);
  void KeepPromptLogprobs(LiveSequence& live, const Scheduler::Row& row, SequenceResult& result);
  void AppendToken(LiveSequence& live, TokenId token, std::optional<TokenLogprobs> logprobs);
  std::optional<FinishReason> ReasonAfter(const Sequence& sequence, TokenId token) const;
  void Accept(const SubmittedRequest& submitted);
  Status Admissible(const Request& request) const;
  Status HasRoom(const Request& request) const;
  Status MeetsDeadline(const Request& request) const;
  void CountBacklog(int64_t elapsed_ns, uint64_t served);
  void Refuse(const SubmittedRequest& submitted, const Status& status);
  void StopSequence(const SequenceStop& stop);
  void EndDue();
  void EndAll(FinishReason reason);
  // Ends all sequences of a request that have not ended.
  void EndRequest(LiveRequest& request, FinishReason reason, const Status& status);
  // Ends one; `output` is its last and may bring a token.
  void EndSequence(LiveSequence& live, FinishReason reason, SequenceOutput output);
  void CountOutcome(const LiveRequest& request);
  // An output that so far says nothing but whose it is and, if it is the first, the prompt's facts.
  SequenceOutput StartOutput(LiveSequence& live);
  void BuildSteps();
  ScheduledStep TakeSpareStep();
  void KeepMemory(StepResult& result);
  void ForgetEnded();
  int64_t NextWake() const;
  bool IsFirstThatRuns(const Sequence& sequence) const;

  const EngineCoreOptions options_;
  const int32_t tokens_limit_;  // of prompt and output, by context and pool
  const FcfsPolicy policy_;
  KvManager kv_;
  Scheduler scheduler_;
  absl::btree_map<RequestId, std::unique_ptr<LiveRequest>> requests_;
  absl::flat_hash_map<SequenceId, LiveSequence*> sequences_;
  absl::btree_set<std::pair<int64_t, RequestId>> deadlines_;
  std::vector<RequestId> ended_;  // answered; steps in flight may still refer to them
  uint64_t sequences_given_ = 0;
  int32_t sequences_live_ = 0;
  int32_t requests_live_ = 0;
  int32_t step_failures_ = 0;
  // How fast sequences are served while others wait: time counts only where somebody waited.
  uint64_t sequences_served_ = 0;
  uint64_t backlog_served_ = 0;
  int64_t backlog_ns_ = 0;
  ServiceRate backlog_rate_{0};
  std::optional<int64_t> drain_deadline_ns_;
  int64_t now_ns_ = 0;
  EngineActions actions_;                   // of the tick that runs, or ran last
  std::vector<ScheduledStep> steps_spare_;  // empty ones that came back, for their memory
  EngineStats stats_;                       // without the gauges
};

}  // namespace polysil

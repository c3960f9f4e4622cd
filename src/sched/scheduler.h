// Scheduler: who runs in the next step, with how many tokens, in which blocks. It schedules tokens,
// not phases: prefill chunks, prefix hits, preemption and resumption are the same arithmetic on
// positions. It sees no clock, device, text or result. Owned by EngineCore, on the engine thread.
//
// One step: running sequences with one row left (decodes) first, then prefill chunks, running and
// newly admitted ones, in the order of RequestQueue. Its first is never overtaken, unless it waits
// for a prefix that a running one is computing. With a target for the time between two tokens, a
// step beside decodes takes no more prefill than it has time for, as far as the durations of
// earlier steps tell; a few rows of it go on in any case.
//
// Where several steps may be in flight, the next one is built behind a short one only: it hides the
// time between two steps, of which a long one leaves no share worth what a step that is settled so
// early costs those who come, or go, while it waits for its turn.
//
// Blocks: admission gives a sequence the blocks of all its tokens at once, so a prefill never stops
// for want of blocks. A decode that needs a block takes it from one behind it in policy order that
// is not protected: of the lowest priority, there the one that is cheapest to compute again; each
// earlier preemption doubles that price. The victim gives up its blocks and is computed again
// later. If there is none, the decode sits out the step. A resumed sequence is protected until it
// has chosen one more token, and needs no block before that; so everybody moves on or waits for
// somebody who does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/sequence.h"
#include "kv/kv_manager.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/step.h"
#include "polysil/sched/policy.h"
#include "sched/request_queue.h"
#include "sched/service_weights.h"
#include "sched/step_builder.h"
#include "sched/step_cost.h"

namespace polysil {

struct SchedulerOptions {
  int32_t sequences_max = 64;        // run at once; the executor's limits apply as well
  int32_t queue_sequences_max = 64;  // wait at once, preempted ones included
  int64_t step_target_ns = 0;        // a step with decodes is to end within it; 0: no target
  ServiceWeights weights;
};

class Scheduler final {
 public:
  // A sequence's share of a submitted step.
  struct Row {
    Sequence* sequence;
    int32_t tokens;
    bool sample;
  };

  // `limits` must have passed Validate; `policy` and `kv` must outlive the scheduler.
  Scheduler(const SchedulerOptions& options, const StepLimits& limits,
            const SchedulerPolicy& policy, KvManager& kv);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Puts a waiting sequence into the queue. False: the queue is full. The sequence must fit the
  // pool alone, and live until it is finished and has no step in flight.
  bool TryAdd(Sequence& sequence);
  // From any state: it takes part in nothing any more.
  void Finish(Sequence& sequence);

  // The next step, to be submitted now, in place of whatever `step` holds, whose memory it uses.
  // False: nothing can run, or it is too early; `step` is empty.
  bool BuildStep(ScheduledStep& step);
  // The oldest step in flight came back, whatever it brought. Its rows, as in the step; finished
  // sequences are among them. Valid until the next BuildStep.
  std::span<const Row> FinishOldestStep(int64_t step_id);
  // How long that step took on the device; 0: not known.
  void LearnDuration(int64_t duration_ns) { cost_.Observe(work_finished_, duration_ns); }
  // A row of that step succeeded: its positions are written, full blocks can be found by others.
  // Before the token it chose is appended.
  void Confirm(const Row& row);

  std::span<Sequence* const> running() const { return running_; }
  int32_t waiting() const { return queue_.size(); }
  int64_t tokens_waiting() const { return queue_.tokens(); }
  // See RequestQueue.
  int64_t SequencesBefore(int32_t priority, std::string_view tenant) const {
    return queue_.SequencesBefore(priority, tenant);
  }
  RequestQueue::Holding HeldBy(std::string_view tenant) const { return queue_.HeldBy(tenant); }
  int32_t steps_in_flight() const { return steps_in_flight_; }
  uint64_t preemptions() const { return preemptions_; }
  // Rows submitted so far, and those that buckets add to them.
  uint64_t rows_submitted() const { return rows_submitted_; }
  uint64_t rows_padding() const { return rows_padding_; }

  // INTERNAL where lists, states and tables disagree.
  Status CheckIntegrity() const;

 private:
  struct StepInFlight {
    int64_t step_id = 0;
    std::vector<Row> rows;
    StepWork work;
  };

  bool IsBefore(const Sequence& left, const Sequence& right) const;
  bool MayBuild() const;
  void Fill(StepKind kind);
  void FillUnmixed();
  void AddDecodes();
  void AddPrefills();
  double PrefillTimeNs(StepKind kind) const;
  int32_t PrefillRows(const Sequence& sequence, int32_t rows_remaining) const;
  bool TakesPart(const Sequence& sequence) const;
  Sequence* FirstWaiting() const;
  bool TryAdmit(Sequence& sequence);
  void AddRows(Sequence& sequence, int32_t rows);
  bool TryGrow(size_t running_index);
  size_t VictimBehind(size_t running_index) const;
  double ResumeCost(const Sequence& sequence) const;
  void Preempt(size_t running_index);
  void Emit(ScheduledStep& step);

  const SchedulerPolicy& policy_;
  KvManager& kv_;
  StepBuilder builder_;
  StepCostModel cost_;
  const int32_t sequences_max_;
  const double step_target_ns_;
  RequestQueue queue_;
  std::vector<Sequence*> running_;   // in policy order
  std::vector<Sequence*> prefills_;  // scratch of AddPrefills
  std::vector<SequenceId> ended_;    // the executor is still to be told
  // A ring: steps_in_flight_ steps from oldest_step_ on.
  std::vector<StepInFlight> ring_;
  int32_t oldest_step_ = 0;
  int32_t steps_in_flight_ = 0;
  int64_t steps_built_ = 0;
  double newest_step_ns_ = 0.0;  // how long it is expected to take; 0: not known
  int64_t builds_ = 0;           // those that gave no step counted too
  StepKind last_kind_ = StepKind::kMixed;
  size_t decodes_ = 0;         // of the step that is built
  double step_time_ns_ = 0.0;  // within which it is to end
  StepWork work_finished_;     // of the step that came back last
  uint64_t preemptions_ = 0;
  uint64_t rows_submitted_ = 0;
  uint64_t rows_padding_ = 0;
};

}  // namespace polysil

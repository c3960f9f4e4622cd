#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// Behind a step that takes longer, the next one is not built before it is back.
constexpr double kBuildBehindNsMax = 20e6;
// Prefill goes on by so many rows a step, though there is no time for them.
constexpr int32_t kPrefillRowsMin = 2;
// A target that the decodes alone come near leaves prefill so much of their time: in their step or,
// where kinds do not mix, in a step of its own.
constexpr double kPrefillShareMixed = 1.0 / 3.0;
constexpr double kPrefillShareAlone = 1.0;

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, const StepLimits& limits,
                     const SchedulerPolicy& policy, KvManager& kv)
    : policy_(policy),
      kv_(kv),
      builder_(limits),
      sequences_max_(
          std::min({options.sequences_max, builder_.sequences_max(), builder_.tokens_max()})),
      step_target_ns_(static_cast<double>(options.step_target_ns)),
      queue_(policy, options.weights, options.queue_sequences_max),
      ring_(static_cast<size_t>(limits.steps_in_flight_max)) {
  CHECK(sequences_max_ > 0, "{} sequences may run", sequences_max_);
}

bool Scheduler::TryAdd(Sequence& sequence) {
  CHECK(sequence.state() == SequenceState::kWaiting, "sequence {} is {}", sequence.id().value,
        Name(sequence.state()));
  if (!queue_.TryPush(sequence)) return false;
  const Request& request = *sequence.request();
  sequence.scheduler_entry().table =
      kv_.Open({.salt = request.cache_salt,
                .reads_cache = !request.sampling.prompt_logprobs.has_value(),
                .counted = sequence.index() == 0,
                .priority = request.priority,
                .retention = &request.retention});
  return true;
}

void Scheduler::Finish(Sequence& sequence) {
  if (sequence.state() == SequenceState::kRunning) {
    CHECK(std::erase(running_, &sequence) == 1, "sequence {} does not run", sequence.id().value);
  }
  queue_.Leave(sequence);
  sequence.MoveTo(SequenceState::kFinished);
  SchedulerEntry& entry = sequence.scheduler_entry();
  kv_.Close(entry.table);
  if (entry.started && !SEEDED_BUG(forget_the_ended)) ended_.push_back(sequence.id());
}

bool Scheduler::BuildStep(ScheduledStep& step) {
  step.Clear();
  if (!MayBuild()) return false;
  ++builds_;
  queue_.StartStep();
  if (builder_.limits().mixes_prefill_and_decode) {
    Fill(StepKind::kMixed);
  } else {
    FillUnmixed();
  }
  builder_.TrimToBucket();
  if (builder_.parts().empty()) return false;
  Emit(step);
  return true;
}

std::span<const Scheduler::Row> Scheduler::FinishOldestStep(int64_t step_id) {
  CHECK(steps_in_flight_ > 0, "step {} came back, none is in flight", step_id);
  const StepInFlight& step = ring_[static_cast<size_t>(oldest_step_)];
  CHECK(step.step_id == step_id, "step {} came back before step {}", step_id, step.step_id);
  oldest_step_ = (oldest_step_ + 1) % static_cast<int32_t>(ring_.size());
  --steps_in_flight_;
  work_finished_ = step.work;
  for (const Row& row : step.rows) {
    row.sequence->OnStepDone(row.sample);
    kv_.ReleaseFromStep(row.sequence->scheduler_entry().table);
  }
  return step.rows;
}

void Scheduler::Confirm(const Row& row) {
  Sequence& sequence = *row.sequence;
  sequence.OnComputed(row.tokens);
  kv_.Publish(sequence.scheduler_entry().table, sequence.tokens(), sequence.tokens_computed());
}

bool Scheduler::IsBefore(const Sequence& left, const Sequence& right) const {
  return policy_.IsBefore(StandingOf(left), StandingOf(right));
}

bool Scheduler::MayBuild() const {
  if (steps_in_flight_ == 0) return true;
  return steps_in_flight_ < static_cast<int32_t>(ring_.size()) &&
         newest_step_ns_ <= kBuildBehindNsMax;
}

void Scheduler::Fill(StepKind kind) {
  builder_.Start(kind);
  if (kind != StepKind::kPrefillOnly) AddDecodes();
  decodes_ = builder_.parts().size();
  step_time_ns_ = PrefillTimeNs(kind);
  if (kind != StepKind::kDecodeOnly) AddPrefills();
  last_kind_ = kind;
}

// Turn and turn about where there is work of both kinds, so that neither starves the other.
void Scheduler::FillUnmixed() {
  if (last_kind_ == StepKind::kPrefillOnly) {
    Fill(StepKind::kDecodeOnly);
    if (!builder_.parts().empty()) return;
  }
  Fill(StepKind::kPrefillOnly);
  if (!builder_.parts().empty()) return;
  // What was just admitted may have been found in the cache but for its last token.
  Fill(StepKind::kDecodeOnly);
}

void Scheduler::AddDecodes() {
  // TryGrow preempts only behind the index.
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.rows_remaining() != 1 || !TakesPart(sequence)) continue;
    if (builder_.RowsFitting(1) == 0) return;
    if (TryGrow(i)) AddRows(sequence, 1);
  }
}

void Scheduler::AddPrefills() {
  prefills_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->rows_remaining() <= 1 || !TakesPart(*sequence)) continue;
    prefills_.push_back(sequence);
    queue_.WantPrefill(*sequence);
  }
  std::ranges::sort(
      prefills_, [this](const Sequence* l, const Sequence* r) { return queue_.IsBefore(*l, *r); });
  bool admits = true;
  size_t next = 0;
  while (true) {
    Sequence* sequence = next < prefills_.size() ? prefills_[next] : nullptr;
    Sequence* waiting = admits ? FirstWaiting() : nullptr;
    const bool takes_waiting =
        waiting != nullptr && (sequence == nullptr || queue_.IsBefore(*waiting, *sequence));
    if (takes_waiting) sequence = waiting;
    if (sequence == nullptr) return;
    // A prompt of one token asks for a prefill's place too: what it leaves is known once admitted.
    if (PrefillRows(*sequence, std::max(sequence->rows_remaining(), 2)) == 0) return;
    if (takes_waiting && !TryAdmit(*waiting)) {
      // One that waits for a prefix takes nothing and keeps nobody back.
      admits = kv_.WaitsForPrefix(waiting->scheduler_entry().table);
      continue;
    }
    if (!takes_waiting) ++next;
    const int32_t rows = PrefillRows(*sequence, sequence->rows_remaining());
    if (rows > 0) AddRows(*sequence, rows);
  }
}

void Scheduler::AddRows(Sequence& sequence, int32_t rows) {
  builder_.Add(sequence, rows);
  queue_.Charge(sequence, sequence.tokens_scheduled() + rows);
}

// How long a step may take that others wait for: with the decodes in it or, where prefill and
// decodes do not mix, before the step of those.
double Scheduler::PrefillTimeNs(StepKind kind) const {
  if (step_target_ns_ <= 0.0 || !cost_.knows()) return kNoLimit;
  // Most steps end in time, not half of them.
  const double target_ns = step_target_ns_ / (1.0 + 2.0 * cost_.spread());
  if (kind != StepKind::kPrefillOnly) {
    if (builder_.parts().empty()) return kNoLimit;
    const double decodes_ns = cost_.PredictNs(builder_.work());
    return std::max(target_ns, decodes_ns * (1.0 + kPrefillShareMixed));
  }
  StepWork decodes;
  for (const Sequence* sequence : running_) {
    if (sequence->rows_remaining() == 1) decodes = decodes.With(sequence->tokens_scheduled(), 1);
  }
  if (decodes.sequences == 0) return kNoLimit;
  const double decodes_ns = cost_.PredictNs(decodes);
  return std::max(target_ns - decodes_ns, decodes_ns * kPrefillShareAlone);
}

// Of rows_remaining, those that the step has room and time for.
int32_t Scheduler::PrefillRows(const Sequence& sequence, int32_t rows_remaining) const {
  const int32_t rows_fitting = builder_.RowsFitting(rows_remaining);
  if (step_time_ns_ == kNoLimit || rows_fitting == 0) return rows_fitting;
  int32_t rows = 0;
  int32_t beyond = rows_fitting + 1;
  while (beyond - rows > 1) {
    const int32_t middle = rows + (beyond - rows) / 2;
    const bool in_time = cost_.PredictNs(builder_.WorkWith(sequence, middle)) <= step_time_ns_;
    (in_time ? rows : beyond) = middle;
  }
  if (builder_.parts().size() == decodes_)
    rows = std::max(rows, std::min(rows_fitting, kPrefillRowsMin));
  return builder_.RowsFitting(rows);
}

bool Scheduler::TakesPart(const Sequence& sequence) const {
  return sequence.scheduler_entry().held_back_build != builds_;
}

Sequence* Scheduler::FirstWaiting() const {
  return queue_.First([this](const Sequence& sequence) {
    return !kv_.WaitsForPrefix(sequence.scheduler_entry().table);
  });
}

bool Scheduler::TryAdmit(Sequence& sequence) {
  if (static_cast<int32_t>(running_.size()) >= sequences_max_) return false;
  // One block for each that runs is left alone: the next block boundaries would undo the admission.
  const int32_t blocks_spared = static_cast<int32_t>(running_.size());
  const std::optional<int32_t> tokens_cached =
      kv_.TryAdmit(sequence.scheduler_entry().table, sequence.tokens(), blocks_spared);
  if (!tokens_cached) return false;
  queue_.Admit(sequence, *tokens_cached);
  queue_.GetPrefill(sequence);
  sequence.StartAt(*tokens_cached);
  sequence.MoveTo(SequenceState::kRunning);
  const auto place = std::ranges::lower_bound(
      running_, &sequence,
      [this](const Sequence* l, const Sequence* r) { return IsBefore(*l, *r); });
  running_.insert(place, &sequence);
  return true;
}

bool Scheduler::TryGrow(size_t running_index) {
  const Sequence& sequence = *running_[running_index];
  const BlockTableId table = sequence.scheduler_entry().table;
  while (!kv_.TryExtend(table, sequence.tokens_scheduled() + 1)) {
    const size_t victim = VictimBehind(running_index);
    if (victim == running_index) return false;
    if (running_[victim]->steps_in_flight() > 0) {
      // Its blocks are in use. Kept out of this step, it can be preempted when the others are back.
      running_[victim]->scheduler_entry().held_back_build = builds_;
      return false;
    }
    Preempt(victim);
  }
  return true;
}

// running_index itself: there is none.
size_t Scheduler::VictimBehind(size_t running_index) const {
  size_t victim = running_index;
  double cost = 0.0;
  for (size_t i = running_.size() - 1; i > running_index; --i) {
    const Sequence& sequence = *running_[i];
    if (sequence.owes_progress()) continue;
    const bool first = victim == running_index;
    if (!first && sequence.priority() > running_[victim]->priority()) break;
    const double sequence_cost = ResumeCost(sequence);
    if (!first && sequence_cost >= cost) continue;
    victim = i;
    cost = sequence_cost;
  }
  return victim;
}

double Scheduler::ResumeCost(const Sequence& sequence) const {
  const int32_t tokens = sequence.tokens_total();
  const double once =
      cost_.knows() ? cost_.PredictNs(StepWork{}.With(0, tokens)) : static_cast<double>(tokens);
  return std::ldexp(once, std::min(sequence.preemptions(), 64));
}

void Scheduler::Preempt(size_t running_index) {
  Sequence& sequence = *running_[running_index];
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running_index));
  kv_.Empty(sequence.scheduler_entry().table);
  if (!SEEDED_BUG(keep_the_old_table)) sequence.scheduler_entry().blocks_sent = 0;
  sequence.Rewind();
  sequence.MoveTo(SequenceState::kPreempted);
  queue_.PushPreempted(sequence);
  ++preemptions_;
}

void Scheduler::Emit(ScheduledStep& step) {
  StepInFlight& record = ring_[static_cast<size_t>((oldest_step_ + steps_in_flight_) %
                                                   static_cast<int32_t>(ring_.size()))];
  ++steps_in_flight_;
  record.step_id = ++steps_built_;
  record.rows.clear();
  record.work = builder_.work();
  newest_step_ns_ = cost_.PredictNs(record.work);
  rows_submitted_ += static_cast<uint64_t>(builder_.tokens_total());
  rows_padding_ += static_cast<uint64_t>(record.work.rows - builder_.tokens_total());

  step.step_id = steps_built_;
  std::swap(step.ended, ended_);
  kv_.TakeEvictions(step.step_id, step.copies);
  for (const StepBuilder::Part& part : builder_.parts()) {
    Sequence& sequence = *part.sequence;
    SchedulerEntry& entry = sequence.scheduler_entry();
    if (!entry.started) {
      step.started.push_back(SequenceStart{sequence.id(), sequence.index(), sequence.request()});
      entry.started = true;
    }
    if (entry.blocks_sent == 0) kv_.TakeArrivals(entry.table, step.copies);
    const std::span<const BlockId> blocks = kv_.blocks(entry.table);
    if (sequence.rows_remaining() > 1) queue_.GetPrefill(sequence);
    const bool sample = sequence.SamplesAfter(part.rows);
    step.Add({.id = sequence.id(),
              .tokens_computed = sequence.tokens_scheduled(),
              .tokens = part.rows,
              .blocks_replaced = entry.blocks_sent == 0,
              .sample = sample},
             blocks.subspan(static_cast<size_t>(entry.blocks_sent)));
    entry.blocks_sent = static_cast<int32_t>(blocks.size());
    kv_.HoldForStep(entry.table);
    sequence.OnScheduled(part.rows, sample);
    record.rows.push_back(Row{&sequence, part.rows, sample});
  }
  queue_.EndStep();
}

Status Scheduler::CheckIntegrity() const {
  RETURN_IF_ERROR(queue_.CheckIntegrity());
  if (static_cast<int32_t>(running_.size()) > sequences_max_) {
    return Internal("{} sequences run, at most {} may", running_.size(), sequences_max_);
  }
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    if (sequence.state() != SequenceState::kRunning) {
      return Internal("sequence {} is in the running list and {}", sequence.id().value,
                      Name(sequence.state()));
    }
    if (i > 0 && !IsBefore(*running_[i - 1], sequence)) {
      return Internal("sequence {} runs out of order", sequence.id().value);
    }
    const int64_t room = static_cast<int64_t>(kv_.blocks(sequence.scheduler_entry().table).size()) *
                         kv_.tokens_per_block();
    if (room < sequence.tokens_scheduled() ||
        sequence.tokens_computed() > sequence.tokens_total()) {
      return Internal("sequence {} has room for {}, {} scheduled, {} computed of {}",
                      sequence.id().value, room, sequence.tokens_scheduled(),
                      sequence.tokens_computed(), sequence.tokens_total());
    }
  }
  return OkStatus();
}

}  // namespace polysil

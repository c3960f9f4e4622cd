#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {

Scheduler::Scheduler(const SchedulerOptions& options, const StepLimits& limits,
                     const SchedulerPolicy& policy, KvManager& kv)
    : policy_(policy),
      kv_(kv),
      builder_(limits),
      sequences_max_(
          std::min({options.sequences_max, builder_.sequences_max(), builder_.tokens_max()})),
      queue_(policy, options.queue_sequences_max),
      ring_(static_cast<size_t>(limits.steps_in_flight_max)) {
  CHECK(sequences_max_ > 0, "{} sequences may run", sequences_max_);
}

bool Scheduler::TryAdd(Sequence& sequence) {
  CHECK(sequence.state() == SequenceState::kWaiting, "sequence {} is {}", sequence.id().value,
        Name(sequence.state()));
  if (!queue_.TryPush(sequence)) return false;
  const Request& request = *sequence.request();
  sequence.scheduler_entry().table =
      kv_.Open(request.cache_salt, !request.sampling.prompt_logprobs.has_value());
  return true;
}

void Scheduler::Finish(Sequence& sequence) {
  if (sequence.state() == SequenceState::kRunning) {
    CHECK(std::erase(running_, &sequence) == 1, "sequence {} does not run", sequence.id().value);
  } else {
    queue_.Remove(sequence);
  }
  sequence.MoveTo(SequenceState::kFinished);
  SchedulerEntry& entry = sequence.scheduler_entry();
  kv_.Close(entry.table);
  if (entry.started && !SEEDED_BUG(forget_the_ended)) ended_.push_back(sequence.id());
}

std::optional<ScheduledStep> Scheduler::BuildStep() {
  if (steps_in_flight_ == static_cast<int32_t>(ring_.size())) return std::nullopt;
  ++builds_;
  if (builder_.limits().mixes_prefill_and_decode) {
    Fill(StepKind::kMixed);
  } else {
    FillUnmixed();
  }
  builder_.TrimToBucket();
  if (builder_.parts().empty()) return std::nullopt;
  return Emit();
}

std::span<const Scheduler::Row> Scheduler::FinishOldestStep(int64_t step_id) {
  CHECK(steps_in_flight_ > 0, "step {} came back, none is in flight", step_id);
  const StepInFlight& step = ring_[static_cast<size_t>(oldest_step_)];
  CHECK(step.step_id == step_id, "step {} came back before step {}", step_id, step.step_id);
  oldest_step_ = (oldest_step_ + 1) % static_cast<int32_t>(ring_.size());
  --steps_in_flight_;
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

void Scheduler::Fill(StepKind kind) {
  builder_.Start(kind);
  if (kind != StepKind::kPrefillOnly) AddDecodes();
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
    if (TryGrow(i)) builder_.Add(sequence, 1);
  }
}

void Scheduler::AddPrefills() {
  bool admits = true;
  size_t next = 0;
  while (true) {
    while (next < running_.size() &&
           (running_[next]->rows_remaining() <= 1 || !TakesPart(*running_[next]))) {
      ++next;
    }
    Sequence* sequence = next < running_.size() ? running_[next] : nullptr;
    Sequence* waiting = admits ? queue_.front() : nullptr;
    const bool takes_waiting =
        waiting != nullptr && (sequence == nullptr || IsBefore(*waiting, *sequence));
    if (takes_waiting) sequence = waiting;
    if (sequence == nullptr) return;
    // A prompt of one token asks for a prefill's place too: what it leaves is known once admitted.
    if (builder_.RowsFitting(std::max(sequence->rows_remaining(), 2)) == 0) return;
    if (takes_waiting && !TryAdmit(*waiting)) {
      admits = false;
      continue;
    }
    // An admitted sequence went into running_ at or before `next`.
    ++next;
    const int32_t rows = builder_.RowsFitting(sequence->rows_remaining());
    if (rows > 0) builder_.Add(*sequence, rows);
  }
}

bool Scheduler::TakesPart(const Sequence& sequence) const {
  return sequence.scheduler_entry().held_back_build != builds_;
}

bool Scheduler::TryAdmit(Sequence& sequence) {
  if (static_cast<int32_t>(running_.size()) >= sequences_max_) return false;
  // One block for each that runs is left alone: the next block boundaries would undo the admission.
  const int32_t blocks_spared = static_cast<int32_t>(running_.size());
  const std::optional<int32_t> tokens_cached =
      kv_.TryAdmit(sequence.scheduler_entry().table, sequence.tokens(), blocks_spared);
  if (!tokens_cached) return false;
  queue_.Remove(sequence);
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
    size_t victim = running_.size() - 1;
    while (victim > running_index && running_[victim]->owes_progress()) --victim;
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

void Scheduler::Preempt(size_t running_index) {
  Sequence& sequence = *running_[running_index];
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(running_index));
  kv_.Empty(sequence.scheduler_entry().table);
  if (!SEEDED_BUG(keep_the_old_table)) sequence.scheduler_entry().blocks_sent = 0;
  sequence.Rewind();
  sequence.MoveTo(SequenceState::kPreempted);
  CHECK(queue_.TryPush(sequence), "no place to wait for sequence {}", sequence.id().value);
  ++preemptions_;
}

ScheduledStep Scheduler::Emit() {
  StepInFlight& record = ring_[static_cast<size_t>((oldest_step_ + steps_in_flight_) %
                                                   static_cast<int32_t>(ring_.size()))];
  ++steps_in_flight_;
  record.step_id = ++steps_built_;
  record.rows.clear();

  ScheduledStep step{.step_id = steps_built_, .tokens_total = builder_.tokens_total()};
  step.ended = std::exchange(ended_, {});
  step.sequences.reserve(builder_.parts().size());
  for (const StepBuilder::Part& part : builder_.parts()) {
    Sequence& sequence = *part.sequence;
    SchedulerEntry& entry = sequence.scheduler_entry();
    if (!entry.started) {
      step.started.push_back(SequenceStart{sequence.id(), sequence.index(), sequence.request()});
      entry.started = true;
    }
    const std::span<const BlockId> blocks = kv_.blocks(entry.table);
    const bool sample = sequence.SamplesAfter(part.rows);
    step.sequences.push_back(
        ScheduledSequence{.id = sequence.id(),
                          .tokens_computed = sequence.tokens_scheduled(),
                          .tokens = part.rows,
                          .blocks_replaced = entry.blocks_sent == 0,
                          .blocks_new = {blocks.begin() + entry.blocks_sent, blocks.end()},
                          .sample = sample});
    entry.blocks_sent = static_cast<int32_t>(blocks.size());
    kv_.HoldForStep(entry.table);
    sequence.OnScheduled(part.rows, sample);
    record.rows.push_back(Row{&sequence, part.rows, sample});
  }
  return step;
}

Status Scheduler::CheckIntegrity() const {
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

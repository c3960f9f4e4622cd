#include "engine/engine_core.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "base/seeded_bug.h"
#include "engine/latency_ledger.h"
#include "polysil/base/check.h"

namespace polysil {

struct EngineCore::LiveSequence {
  LiveSequence(LiveRequest& request_owner, SequenceId id, int32_t index,
               std::shared_ptr<const Request> request, int32_t tokens_limit, int64_t arrived_ns)
      : owner(request_owner),
        sequence(id, index, std::move(request), tokens_limit),
        ledger(arrived_ns) {}

  LiveRequest& owner;
  Sequence sequence;
  LatencyLedger ledger;
  bool had_output = false;
  int64_t last_token_ns = 0;
  std::vector<TokenLogprobs> prompt_logprobs;  // until they go out with the first output
};

struct EngineCore::LiveRequest {
  std::shared_ptr<const Request> request;
  int64_t arrived_ns = 0;
  bool had_token = false;
  int32_t prompt_tokens_counted = 0;
  int32_t sequences_left = 0;                  // without their final output
  FinishReason outcome = FinishReason::kStop;  // the worst of those that ended
  std::vector<std::unique_ptr<LiveSequence>> sequences;
};

namespace {

constexpr double kNsPerSecond = 1e9;

Histogram MakeHistogram(std::initializer_list<double> bounds) {
  Histogram histogram;
  histogram.bounds = bounds;
  histogram.counts.resize(bounds.size() + 1);
  return histogram;
}

// Of a step that came back, before its token is appended.
bool IsDecode(const Scheduler::Row& row) {
  return row.tokens == 1 && row.sample && row.sequence->output_tokens() > 0;
}

// The last token of a sequence needs no KV, so a pool of n tokens takes one of n + 1.
int32_t TokensLimit(const RequestLimits& limits) {
  return static_cast<int32_t>(
      std::min<int64_t>(limits.context_tokens_max, limits.kv_tokens_max + 1));
}

// The host tier is the executor's.
KvOptions KvOptionsOf(const EngineCoreOptions& options) {
  KvOptions kv = options.kv;
  kv.host_blocks = options.step_limits.kv_host_blocks;
  kv.block_copy_rows = options.step_limits.block_copy_rows;
  return kv;
}

}  // namespace

EngineCore::EngineCore(const EngineCoreOptions& options)
    : options_(options),
      tokens_limit_(TokensLimit(options.limits)),
      kv_(KvOptionsOf(options)),
      scheduler_({.sequences_max = options.sequences_max,
                  .queue_sequences_max = options.sequences_max + options.queue_max,
                  .step_target_ns = options.itl_target_ns,
                  .weights = options.weights},
                 options.step_limits, policy_, kv_) {
  stats_.time_to_first_token_s = MakeHistogram(
      {0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0});
  stats_.inter_token_latency_s = MakeHistogram(
      {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0});
  stats_.request_duration_s = MakeHistogram(
      {0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0});
  stats_.step_duration_s = MakeHistogram(
      {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0});
}

EngineCore::~EngineCore() = default;

EngineActions& EngineCore::Tick(int64_t now_ns, EngineInputs& inputs) {
  CHECK(now_ns >= now_ns_, "time went from {} back to {}", now_ns_, now_ns);
  actions_.Clear();
  const bool backlogged = scheduler_.waiting() > 0;
  const uint64_t served_before = sequences_served_;
  const int64_t elapsed_ns = now_ns - now_ns_;
  now_ns_ = now_ns;
  kv_.ClearEvents();
  kv_.SetNow(now_ns);
  for (StepResult& result : inputs.results) {
    ApplyResult(result);
    KeepMemory(result);
  }
  if (backlogged) CountBacklog(elapsed_ns, sequences_served_ - served_before);
  for (const SubmittedRequest& submitted : inputs.submitted) Accept(submitted);
  for (const RequestId id : inputs.cancelled) {
    const auto found = requests_.find(id);
    if (found == requests_.end() || SEEDED_BUG(forget_a_cancel)) continue;
    EndRequest(*found->second, FinishReason::kCancelled, OkStatus());
  }
  for (const SequenceStop& stop : inputs.stopped) StopSequence(stop);
  if (inputs.drain_deadline_ns) {
    drain_deadline_ns_ = std::min(drain_deadline_ns_.value_or(kNever), *inputs.drain_deadline_ns);
  }
  EndDue();
  BuildSteps();
  ForgetEnded();
  actions_.wake_ns = NextWake();
  inputs.Clear();
  return actions_;
}

void EngineCore::ApplyResult(StepResult& result) {
  const std::span<const Scheduler::Row> rows = scheduler_.FinishOldestStep(result.step_id);
  ++stats_.steps;
  const Status status = CheckResult(result, rows);
  kv_.FinishCopies(result.step_id, status.ok());
  if (!status.ok()) {
    if (SEEDED_BUG(publish_a_failed_step)) {
      for (const Scheduler::Row& row : rows) {
        if (row.sequence->state() != SequenceState::kFinished) scheduler_.Confirm(row);
      }
    }
    // Nothing of this step is known to be written, so nothing can go on from it.
    ++step_failures_;
    for (const Scheduler::Row& row : rows) {
      if (row.sequence->state() == SequenceState::kFinished) continue;
      LiveSequence& live = *sequences_.at(row.sequence->id());
      live.ledger.OnStep(now_ns_, result.duration_ns, IsDecode(row));
      EndRequest(live.owner, FinishReason::kError, status);
    }
    return;
  }
  step_failures_ = 0;
  scheduler_.LearnDuration(result.duration_ns);
  stats_.step_duration_s.Observe(static_cast<double>(result.duration_ns) / kNsPerSecond);
  actions_.outputs.reserve(actions_.outputs.size() + rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    // Ended meanwhile: by a cancel, a deadline, the token before this one, or a row beside it.
    if (rows[i].sequence->state() == SequenceState::kFinished) continue;
    LiveSequence& live = *sequences_.at(rows[i].sequence->id());
    live.ledger.OnStep(now_ns_, result.duration_ns, IsDecode(rows[i]));
    ApplyRow(live, rows[i], result.sequences[i]);
  }
}

Status EngineCore::CheckResult(const StepResult& result,
                               std::span<const Scheduler::Row> rows) const {
  RETURN_IF_ERROR(result.status);
  if (result.sequences.size() != rows.size()) {
    return Internal("step {} has {} sequences, its result {}", result.step_id, rows.size(),
                    result.sequences.size());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (result.sequences[i].id == rows[i].sequence->id()) continue;
    return Internal("row {} of step {} is of sequence {}, its result of {}", i, result.step_id,
                    rows[i].sequence->id().value, result.sequences[i].id.value);
  }
  return OkStatus();
}

void EngineCore::ApplyRow(LiveSequence& live, const Scheduler::Row& row, SequenceResult& result) {
  Status status = std::move(result.status);
  if (status.ok() && row.sample != result.token.has_value()) {
    status = Internal("a token was {}chosen for sequence {}", row.sample ? "not " : "",
                      row.sequence->id().value);
  }
  if (status.ok() && row.sample &&
      (*result.token < 0 || *result.token >= options_.limits.vocab_size)) {
    status = Internal("token {} was chosen, the vocabulary has {}", *result.token,
                      options_.limits.vocab_size);
  }
  if (!status.ok()) {
    EndRequest(live.owner, FinishReason::kError, status);
    return;
  }
  scheduler_.Confirm(row);
  CountPromptTokens(live);
  KeepPromptLogprobs(live, row, result);
  if (row.sample) AppendToken(live, *result.token, std::move(result.logprobs));
}

// A prompt counts once, chunk by chunk as it is computed or found, whatever is computed again and
// however many sequences share it.
void EngineCore::CountPromptTokens(LiveSequence& live) {
  const int32_t tokens = std::min(live.sequence.tokens_computed(), live.sequence.prompt_tokens());
  int32_t& counted = live.owner.prompt_tokens_counted;
  if (tokens <= counted) return;
  stats_.prompt_tokens += static_cast<uint64_t>(tokens - counted);
  counted = tokens;
}

void EngineCore::KeepPromptLogprobs(LiveSequence& live, const Scheduler::Row& row,
                                    SequenceResult& result) {
  if (!live.sequence.request()->sampling.prompt_logprobs || live.had_output) return;
  // From the start again, after a preemption.
  if (live.sequence.tokens_computed() == row.tokens) live.prompt_logprobs.clear();
  std::ranges::move(result.prompt_logprobs, std::back_inserter(live.prompt_logprobs));
}

void EngineCore::AppendToken(LiveSequence& live, TokenId token,
                             std::optional<TokenLogprobs> logprobs) {
  live.sequence.Append(token);
  ++stats_.generation_tokens;
  if (live.sequence.output_tokens() > 1) {
    stats_.inter_token_latency_s.Observe(static_cast<double>(now_ns_ - live.last_token_ns) /
                                         kNsPerSecond);
  }
  live.last_token_ns = now_ns_;
  if (!live.owner.had_token) {
    live.owner.had_token = true;
    stats_.time_to_first_token_s.Observe(static_cast<double>(now_ns_ - live.owner.arrived_ns) /
                                         kNsPerSecond);
  }
  SequenceOutput output = StartOutput(live);
  output.tokens.push_back(OutputToken{token, std::move(logprobs)});
  const std::optional<FinishReason> reason = ReasonAfter(live.sequence, token);
  if (reason) {
    EndSequence(live, *reason, std::move(output));
  } else {
    actions_.outputs.push_back(std::move(output));
  }
}

std::optional<FinishReason> EngineCore::ReasonAfter(const Sequence& sequence, TokenId token) const {
  const Request& request = *sequence.request();
  // An end token before tokens_min others is an ordinary token, should one be chosen.
  if (sequence.output_tokens() > request.sampling.tokens_min &&
      std::ranges::binary_search(request.end_token_ids, token)) {
    return FinishReason::kStop;
  }
  const int32_t tokens_spared = SEEDED_BUG(end_one_token_early) ? 1 : 0;
  if (sequence.tokens_total() >= sequence.tokens_limit() - tokens_spared) {
    return FinishReason::kLength;
  }
  return std::nullopt;
}

void EngineCore::Accept(const SubmittedRequest& submitted) {
  const Request& request = *submitted.request;
  const Status status = Admissible(request);
  if (!status.ok()) {
    Refuse(submitted, status);
    return;
  }
  auto live = std::make_unique<LiveRequest>();
  live->request = submitted.request;
  live->arrived_ns = submitted.arrived_ns;
  live->sequences_left = request.sequences;
  const int32_t tokens_limit = static_cast<int32_t>(
      std::min(int64_t{tokens_limit_},
               static_cast<int64_t>(request.prompt.size()) + request.sampling.tokens_max));
  for (int32_t index = 0; index < request.sequences; ++index) {
    const SequenceId id{++sequences_given_};
    live->sequences.push_back(std::make_unique<LiveSequence>(*live, id, index, submitted.request,
                                                             tokens_limit, submitted.arrived_ns));
    sequences_.emplace(id, live->sequences.back().get());
    CHECK(scheduler_.TryAdd(live->sequences.back()->sequence), "no place for sequence {}",
          id.value);
  }
  if (request.deadline_ns > 0) deadlines_.emplace(request.deadline_ns, request.id);
  sequences_live_ += request.sequences;
  ++requests_live_;
  CHECK(requests_.emplace(request.id, std::move(live)).second, "request {} came twice",
        request.id.value);
}

void EngineCore::StopSequence(const SequenceStop& stop) {
  const auto found = requests_.find(stop.request);
  if (found == requests_.end()) return;
  const auto& sequences = found->second->sequences;
  if (stop.sequence_index < 0 || stop.sequence_index >= static_cast<int32_t>(sequences.size())) {
    return;
  }
  LiveSequence& live = *sequences[static_cast<size_t>(stop.sequence_index)];
  if (live.sequence.state() == SequenceState::kFinished) return;
  EndSequence(live, FinishReason::kStop, StartOutput(live));
}

void EngineCore::EndDue() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_ns_) {
    // Takes it out of deadlines_.
    EndRequest(*requests_.at(deadlines_.begin()->second), FinishReason::kDeadline, OkStatus());
  }
  if (drain_deadline_ns_.value_or(kNever) > now_ns_) return;
  for (const auto& [id, request] : requests_) {
    EndRequest(*request, FinishReason::kCancelled, OkStatus());
  }
}

void EngineCore::EndRequest(LiveRequest& request, FinishReason reason, const Status& status) {
  for (const std::unique_ptr<LiveSequence>& live : request.sequences) {
    if (live->sequence.state() == SequenceState::kFinished) continue;
    SequenceOutput output = StartOutput(*live);
    output.status = status;
    EndSequence(*live, reason, std::move(output));
    if (SEEDED_BUG(end_one_sequence_of_many)) return;
  }
}

void EngineCore::EndSequence(LiveSequence& live, FinishReason reason, SequenceOutput output) {
  scheduler_.Finish(live.sequence);
  output.finish = reason;
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) ++sequences_served_;
  actions_.outputs.push_back(std::move(output));
  if (SEEDED_BUG(answer_twice)) actions_.outputs.push_back(actions_.outputs.back());
  --sequences_live_;
  LiveRequest& request = live.owner;
  request.outcome = std::max(request.outcome, reason);
  if (--request.sequences_left > 0) return;
  --requests_live_;
  if (request.request->deadline_ns > 0) {
    deadlines_.erase({request.request->deadline_ns, request.request->id});
  }
  CountOutcome(request);
  ended_.push_back(request.request->id);
}

void EngineCore::CountOutcome(const LiveRequest& request) {
  stats_.request_duration_s.Observe(static_cast<double>(now_ns_ - request.arrived_ns) /
                                    kNsPerSecond);
  switch (request.outcome) {
    case FinishReason::kStop:
      ++stats_.requests_stop;
      return;
    case FinishReason::kLength:
      ++stats_.requests_length;
      return;
    case FinishReason::kCancelled:
      ++stats_.requests_cancelled;
      return;
    case FinishReason::kDeadline:
      ++stats_.requests_deadline;
      return;
    case FinishReason::kError:
      ++stats_.requests_error;
      return;
  }
}

SequenceOutput EngineCore::StartOutput(LiveSequence& live) {
  SequenceOutput output{.request = live.owner.request->id,
                        .sequence_index = live.sequence.index(),
                        .prompt_tokens_cached = live.sequence.prompt_tokens_cached(),
                        .latency = live.ledger.UpTo(now_ns_, live.sequence)};
  if (!live.had_output) output.prompt_logprobs = std::move(live.prompt_logprobs);
  live.had_output = true;
  return output;
}

void EngineCore::BuildSteps() {
  ScheduledStep step = TakeSpareStep();
  while (scheduler_.BuildStep(step)) {
    for (const ScheduledSequence& row : step.sequences) {
      if (row.blocks_replaced) sequences_.at(row.id)->ledger.OnAdmitted(now_ns_);
    }
    actions_.steps.push_back(std::move(step));
    step = TakeSpareStep();
  }
  steps_spare_.push_back(std::move(step));
  // Otherwise they would wait for ever: nothing is on its way that could wake us.
  CHECK(sequences_live_ == 0 || scheduler_.steps_in_flight() > 0, "{} sequences and no step",
        sequences_live_);
}

ScheduledStep EngineCore::TakeSpareStep() {
  if (steps_spare_.empty()) return {};
  ScheduledStep step = std::move(steps_spare_.back());
  steps_spare_.pop_back();
  return step;
}

// No more than steps were ever in flight at once, and one.
void EngineCore::KeepMemory(StepResult& result) {
  result.step.Clear();
  result.sequences.clear();
  result.step.results_memory = std::move(result.sequences);
  steps_spare_.push_back(std::move(result.step));
}

void EngineCore::ForgetEnded() {
  std::erase_if(ended_, [this](RequestId id) {
    const auto found = requests_.find(id);
    for (const auto& live : found->second->sequences) {
      if (live->sequence.steps_in_flight() > 0) return false;
    }
    for (const auto& live : found->second->sequences) sequences_.erase(live->sequence.id());
    requests_.erase(found);
    return true;
  });
}

int64_t EngineCore::NextWake() const {
  if (SEEDED_BUG(sleep_past_a_deadline)) return kNever;
  int64_t wake_ns = deadlines_.empty() ? kNever : deadlines_.begin()->first;
  if (sequences_live_ > 0) wake_ns = std::min(wake_ns, drain_deadline_ns_.value_or(kNever));
  return wake_ns;
}

// Whether no sequence of its request before it runs.
bool EngineCore::IsFirstThatRuns(const Sequence& sequence) const {
  if (sequence.request()->sequences == 1) return true;
  for (const std::unique_ptr<LiveSequence>& live : sequences_.at(sequence.id())->owner.sequences) {
    if (live->sequence.state() == SequenceState::kRunning) return &live->sequence == &sequence;
  }
  return false;
}

EngineStats EngineCore::stats() const {
  EngineStats stats = stats_;
  for (const Sequence* sequence : scheduler_.running()) {
    stats.requests_running += IsFirstThatRuns(*sequence) ? 1 : 0;
  }
  stats.requests_waiting = requests_live_ - stats.requests_running;
  const KvStats kv = kv_.stats();
  stats.kv_blocks_total = kv.blocks_total;
  stats.kv_blocks_used = kv.blocks_used;
  stats.kv_blocks_cached = kv.blocks_cached;
  stats.kv_host_blocks_total = kv.host_blocks_total;
  stats.kv_host_blocks_used = kv.host_blocks_used;
  stats.kv_blocks_copied_out = kv.blocks_copied_out;
  stats.kv_blocks_copied_in = kv.blocks_copied_in;
  stats.prefix_cache_query_tokens = kv.query_tokens;
  stats.prefix_cache_hit_tokens = kv.hit_tokens;
  stats.preemptions = scheduler_.preemptions();
  stats.step_tokens = scheduler_.rows_submitted();
  stats.step_padding_tokens = scheduler_.rows_padding();
  return stats;
}

Status EngineCore::CheckIntegrity() const {
  RETURN_IF_ERROR(kv_.CheckIntegrity());
  RETURN_IF_ERROR(scheduler_.CheckIntegrity());
  int32_t sequences_live = 0;
  int32_t requests_live = 0;
  for (const auto& [id, request] : requests_) {
    int32_t left = 0;
    for (const auto& live : request->sequences) {
      if (live->sequence.state() != SequenceState::kFinished) ++left;
    }
    if (left != request->sequences_left) {
      return Internal("request {} has {} sequences left, {} counted", id.value, left,
                      request->sequences_left);
    }
    if (left == 0 && std::ranges::find(ended_, id) == ended_.end()) {
      return Internal("request {} ended and is not to be forgotten", id.value);
    }
    sequences_live += left;
    requests_live += left > 0 ? 1 : 0;
  }
  const int32_t placed = static_cast<int32_t>(scheduler_.running().size()) + scheduler_.waiting();
  if (sequences_live != sequences_live_ || sequences_live != placed ||
      requests_live != requests_live_) {
    return Internal("{} sequences live, {} counted, {} run or wait; {} requests live, {} counted",
                    sequences_live, sequences_live_, placed, requests_live, requests_live_);
  }
  return OkStatus();
}

}  // namespace polysil

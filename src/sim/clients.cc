#include "sim/clients.h"

#include <algorithm>

#include "polysil/base/check.h"

namespace polysil {
namespace {

// The names of what must hold.
constexpr const char* kTokens = "tokens in order and as alone";
constexpr const char* kOneEnd = "one final status";
constexpr const char* kReason = "an end has its reason";
constexpr const char* kObeyed = "cancels and deadlines are obeyed at once";
constexpr const char* kStarves = "nobody starves";
constexpr const char* kCached = "cached tokens are full blocks of the prompt";

constexpr int64_t kWaitStepsSpared = 100;
constexpr int64_t kWaitStepsPerToken = 4;

int64_t WorkOf(const Request& request) {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.sampling.tokens_max;
  return tokens * std::max(1, request.sequences);
}

}  // namespace

Clients::Clients(const EngineCoreOptions& engine, const SimExecutor& device, Workload& workload,
                 Timeline* timeline)
    : engine_(engine), device_(device), workload_(workload), timeline_(timeline) {}

int64_t Clients::next_ns() const {
  int64_t next_ns = workload_.next_ns();
  if (!cancels_.empty()) next_ns = std::min(next_ns, cancels_.begin()->first);
  if (!cancels_next_.empty() || !stops_next_.empty()) next_ns = 0;
  return next_ns;
}

int64_t Clients::next_due_ns() const {
  int64_t due_ns = deadlines_.empty() ? kNever : deadlines_.begin()->first;
  if (calls_live_ > 0) due_ns = std::min(due_ns, drain_deadline_ns_.value_or(kNever));
  return due_ns;
}

void Clients::Act(int64_t now_ns, EngineInputs& inputs) {
  cancelled_now_.clear();
  for (const RequestId id : cancels_next_) Cancel(id, inputs);
  cancels_next_.clear();
  std::ranges::copy(stops_next_, std::back_inserter(inputs.stopped));
  stops_next_.clear();
  while (workload_.next_ns() <= now_ns) Submit(workload_.Take(), now_ns, inputs);
  while (!cancels_.empty() && cancels_.begin()->first <= now_ns) {
    Cancel(cancels_.begin()->second, inputs);
    cancels_.erase(cancels_.begin());
  }
}

void Clients::Submit(SimCall call, int64_t now_ns, EngineInputs& inputs) {
  const RequestId id{calls_.size() + 1};
  call.request->id = id;
  const Request& request = *call.request;
  auto added = std::make_unique<Call>();
  added->arrived_ns = now_ns;
  added->validity = Validate(request, engine_.limits);
  const int32_t sequences = std::clamp(request.sequences, 1, engine_.limits.sequences_max);
  added->streams.resize(static_cast<size_t>(sequences));
  added->streams_left = sequences;
  sequences_live_ += sequences;
  ++calls_live_;
  added->steps_before = device_.counts().steps;
  added->work_before = work_ended_;
  work_total_ += WorkOf(request);
  // Of three quarters even a tenant that leaves room for others may have all.
  const double share = engine_.tenants_leave_room ? 0.75 : 1.0;
  added->had_place = sequences_live_ <= share * (engine_.sequences_max + engine_.queue_max) &&
                     static_cast<double>(work_total_ - work_ended_) <=
                         share * static_cast<double>(engine_.queue_tokens_max);
  if (call.cancel_ns) cancels_.emplace(*call.cancel_ns, id);
  if (request.deadline_ns > 0) deadlines_.emplace(request.deadline_ns, id);
  inputs.submitted.push_back({call.request, now_ns});
  added->call = std::move(call);
  calls_.push_back(std::move(added));
}

// Some say it twice, or say it of a call that never was.
void Clients::Cancel(RequestId id, EngineInputs& inputs) {
  inputs.cancelled.push_back(id);
  if (id.value % 3 == 0) inputs.cancelled.push_back(id);
  if (id.value % 5 == 0) inputs.cancelled.push_back(RequestId{id.value + 1'000'000'000});
  Call* call = Find(id);
  if (call == nullptr) return;
  call->cancelled = true;
  cancelled_now_.push_back(id);
}

void Clients::See(int64_t now_ns, const std::vector<SequenceOutput>& outputs) {
  for (const SequenceOutput& output : outputs) {
    Call* call = output.request.value - 1 < calls_.size() ? Find(output.request) : nullptr;
    if (!Expect(call != nullptr, kOneEnd, "request {} gets an output and is not known or has ended",
                output.request.value)) {
      return;
    }
    const size_t index = static_cast<size_t>(output.sequence_index);
    if (!Expect(index < call->streams.size(), kOneEnd, "request {} has no sequence {}",
                output.request.value, index)) {
      return;
    }
    Stream& stream = call->streams[index];
    if (!Expect(!stream.ended, kOneEnd, "request {}/{} gets an output after its end",
                output.request.value, index)) {
      return;
    }
    SeeTokens(*call, stream, now_ns, output);
    if (output.finish) {
      SeeEnd(*call, stream, now_ns, output);
    } else {
      React(*call, stream, output.sequence_index);
    }
  }
  for (const RequestId id : cancelled_now_) {
    Expect(Find(id) == nullptr, kObeyed, "request {} was cancelled and goes on", id.value);
  }
  Expect(deadlines_.empty() || deadlines_.begin()->first > now_ns, kObeyed,
         "the deadline of request {} has passed",
         deadlines_.empty() ? 0 : deadlines_.begin()->second.value);
  CheckWait();
}

// The call that came first ends within so many steps for each token that was to be computed when it
// came or has been asked for since. One step brings somebody one token further at least; preempted
// sequences compute some of theirs again.
void Clients::CheckWait() {
  while (oldest_live_ < calls_.size() && calls_[oldest_live_] == nullptr) ++oldest_live_;
  if (oldest_live_ == calls_.size()) return;
  const Call& call = *calls_[oldest_live_];
  const int64_t steps = device_.counts().steps - call.steps_before;
  const int64_t steps_max =
      kWaitStepsSpared + kWaitStepsPerToken * (work_total_ - call.work_before);
  Expect(steps <= steps_max, kStarves, "request {} has not ended after {} steps",
         call.call.request->id.value, steps);
}

void Clients::SeeTokens(Call& call, Stream& stream, int64_t now_ns, const SequenceOutput& output) {
  const Request& request = *call.call.request;
  Expect(!output.tokens.empty() || output.finish, kTokens, "an output of request {} says nothing",
         request.id.value);
  const int32_t prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t size = engine_.kv.tokens_per_block;
  Expect(output.prompt_tokens_cached % size == 0 &&
             output.prompt_tokens_cached <= std::max(0, prompt - 1) / size * size &&
             (output.prompt_tokens_cached == 0 || !request.sampling.prompt_logprobs),
         kCached, "request {} has {} cached of {}", request.id.value, output.prompt_tokens_cached,
         prompt);
  for (const OutputToken& token : output.tokens) {
    const TokenId owed = DrawToken(request.sampling.seed, output.sequence_index,
                                   prompt + stream.tokens, engine_.limits.vocab_size);
    Expect(token.id == owed, kTokens, "request {}/{}: output token {} is {}, alone it is {}",
           request.id.value, output.sequence_index, stream.tokens, token.id, owed);
    ++stream.tokens;
    ++output_tokens_;
    if (call.call.session >= 0) stream.output.push_back(token.id);
    if (stream.tokens == 1) {
      time_to_first_token_.Observe(now_ns - call.arrived_ns);
      if (timeline_ != nullptr) timeline_->ObserveFirstToken(now_ns, now_ns - call.arrived_ns);
    } else {
      inter_token_.Observe(now_ns - stream.last_token_ns);
      if (timeline_ != nullptr) timeline_->ObserveGap(now_ns, now_ns - stream.last_token_ns);
    }
    stream.last_token_ns = now_ns;
  }
}

void Clients::SeeEnd(Call& call, Stream& stream, int64_t now_ns, const SequenceOutput& output) {
  const Request& request = *call.call.request;
  const std::string wrong = WrongReason(call, stream, now_ns, output);
  Expect(wrong.empty(), kReason, "request {}/{} with {} of {} tokens: {}", request.id.value,
         output.sequence_index, stream.tokens, TokensOwed(request), wrong);
  stream.ended = true;
  --sequences_live_;
  if (--call.streams_left > 0) return;
  --calls_live_;
  work_ended_ += WorkOf(request);
  if (call.validity.ok()) prompt_tokens_ += static_cast<int64_t>(request.prompt.size());
  duration_.Observe(now_ns - call.arrived_ns);
  deadlines_.erase({request.deadline_ns, request.id});
  const bool well = output.finish == FinishReason::kLength || output.finish == FinishReason::kStop;
  if (well && call.call.session >= 0) {
    workload_.OnEnd(call.call.session, request, stream.output, now_ns);
  }
  calls_[request.id.value - 1].reset();
}

std::string Clients::WrongReason(const Call& call, const Stream& stream, int64_t now_ns,
                                 const SequenceOutput& output) const {
  const Request& request = *call.call.request;
  if (!output.status.ok() && output.finish != FinishReason::kError) return "a status without error";
  switch (*output.finish) {
    case FinishReason::kStop: {
      const bool chose_end = stream.tokens > request.sampling.tokens_min &&
                             !output.tokens.empty() &&
                             std::ranges::count(request.end_token_ids, output.tokens.back().id) > 0;
      return chose_end || stream.stop_sent ? "" : "nothing told it to stop";
    }
    case FinishReason::kLength:
      return stream.tokens == TokensOwed(request) ? "" : "it ends at no limit of length";
    case FinishReason::kCancelled:
      return call.cancelled || drain_deadline_ns_.value_or(kNever) <= now_ns
                 ? ""
                 : "nobody cancelled it";
    case FinishReason::kDeadline:
      return request.deadline_ns > 0 && request.deadline_ns <= now_ns ? "" : "no deadline passed";
    case FinishReason::kError:
      return WrongError(call, stream, output.status);
  }
  return "no such reason";
}

std::string Clients::WrongError(const Call& call, const Stream& stream,
                                const Status& status) const {
  if (status.ok()) return "an error without a status";
  const bool refused = stream.tokens == 0;
  const std::string message = Message(status);
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return refused && !call.validity.ok() ? "" : "refused, and valid: " + message;
    case StatusCode::kResourceExhausted:
      // One with a deadline may be told at once that its turn would come too late.
      return refused && (!call.had_place || call.call.request->deadline_ns > 0)
                 ? ""
                 : "refused, and there was a place: " + message;
    case StatusCode::kUnavailable:
      if (refused && drain_deadline_ns_) return "";
      [[fallthrough]];
    default:
      return device_.has_failed(call.call.request->id) ? "" : "nothing of it failed: " + message;
  }
}

void Clients::React(Call& call, Stream& stream, int32_t index) {
  const Request& request = *call.call.request;
  Expect(stream.tokens < TokensOwed(request), kReason, "request {}/{} goes on after {} tokens",
         request.id.value, index, stream.tokens);
  if (call.call.cancel_after_tokens > 0 && stream.tokens == call.call.cancel_after_tokens) {
    cancels_next_.push_back(request.id);
  }
  if (call.call.stop_after_tokens > 0 && stream.tokens == call.call.stop_after_tokens) {
    stream.stop_sent = true;
    stops_next_.push_back({request.id, index});
    if (request.id.value % 4 == 0) stops_next_.push_back({request.id, index + 1000});
  }
}

// Where nothing ends it before.
int32_t Clients::TokensOwed(const Request& request) const {
  const int64_t limit =
      std::min<int64_t>(engine_.limits.context_tokens_max, engine_.limits.kv_tokens_max + 1);
  const int64_t room = limit - static_cast<int64_t>(request.prompt.size());
  return static_cast<int32_t>(std::min<int64_t>(request.sampling.tokens_max, room));
}

}  // namespace polysil

// EngineCore's door: which requests come in, and what those hear that do not.
#include <algorithm>

#include "base/leaves_room.h"
#include "engine/engine_core.h"

namespace polysil {
namespace {

constexpr double kSecondsPerNs = 1e-9;
// So many have to be served under load before their rate is told to anybody.
constexpr uint64_t kServedKnown = 8;

}  // namespace

void EngineCore::CountBacklog(int64_t elapsed_ns, uint64_t served) {
  backlog_ns_ += elapsed_ns;
  backlog_served_ += served;
  backlog_rate_.Observe(backlog_ns_, backlog_served_);
}

Status EngineCore::Admissible(const Request& request) const {
  if (draining()) return Unavailable("the engine is shutting down");
  RETURN_IF_ERROR(Validate(request, options_.limits));
  RETURN_IF_ERROR(HasRoom(request));
  return MeetsDeadline(request);
}

// Bounded by sequences and by tokens. Where there are tenants, each leaves room for others.
Status EngineCore::HasRoom(const Request& request) const {
  const int64_t places = int64_t{options_.sequences_max} + options_.queue_max;
  if (sequences_live_ + request.sequences > places) {
    return ResourceExhausted("{} sequences run or wait and {} more were asked for, {} are the most",
                             sequences_live_, request.sequences, places);
  }
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) * request.sequences;
  const int64_t tokens_waiting = scheduler_.tokens_waiting();
  if (tokens_waiting > 0 && tokens_waiting + tokens > options_.queue_tokens_max) {
    return ResourceExhausted("{} tokens wait and {} more were sent, {} are the most",
                             tokens_waiting, tokens, options_.queue_tokens_max);
  }
  if (!options_.tenants_leave_room) return OkStatus();
  const RequestQueue::Holding held = scheduler_.HeldBy(request.tenant);
  const int64_t places_free = places - sequences_live_;
  if (!LeavesRoom(held.sequences, request.sequences, places_free)) {
    return ResourceExhausted(
        "{} sequences of this tenant run or wait and {} more were asked for; {} places are left "
        "for all, and a tenant may have {} times as many as are left",
        held.sequences, request.sequences, places_free, kRoomShare);
  }
  const int64_t tokens_left = options_.queue_tokens_max - tokens_waiting;
  if (held.tokens_waiting > 0 && !LeavesRoom(held.tokens_waiting, tokens, tokens_left)) {
    return ResourceExhausted(
        "{} tokens of this tenant wait and {} more were sent; {} are left for all, and of a tenant "
        "may wait {} times as many as are left",
        held.tokens_waiting, tokens, tokens_left, kRoomShare);
  }
  return OkStatus();
}

// Whether its turn to begin comes before its deadline, as fast as others were served lately.
Status EngineCore::MeetsDeadline(const Request& request) const {
  if (request.deadline_ns <= now_ns_ || backlog_served_ < kServedKnown) return OkStatus();
  const int64_t places_free =
      options_.sequences_max - static_cast<int64_t>(scheduler_.running().size());
  const int64_t before = scheduler_.SequencesBefore(request.priority, request.tenant) - places_free;
  if (before <= 0) return OkStatus();
  const double rate = backlog_rate_.PerSecond(backlog_ns_);
  const double left_s = static_cast<double>(request.deadline_ns - now_ns_) * kSecondsPerNs;
  if (static_cast<double>(before) <= rate * left_s) return OkStatus();
  return ResourceExhausted(
      "{} sequences are served before this one, about {:.3g} a second; its deadline is in {:.3g} s",
      before, rate, left_s);
}

void EngineCore::Refuse(const SubmittedRequest& submitted, const Status& status) {
  const Request& request = *submitted.request;
  ++stats_.requests_refused;
  const int32_t sequences = std::clamp(request.sequences, 1, options_.limits.sequences_max);
  const int64_t queue_ns = now_ns_ - submitted.arrived_ns;
  for (int32_t index = 0; index < sequences; ++index) {
    actions_.outputs.push_back(SequenceOutput{.request = request.id,
                                              .sequence_index = index,
                                              .finish = FinishReason::kError,
                                              .status = status,
                                              .latency = {.queue_ns = queue_ns}});
  }
}

}  // namespace polysil

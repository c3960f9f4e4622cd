#include "bench/load_call.h"

#include <algorithm>
#include <utility>

namespace polysil {
namespace {

constexpr size_t kBodyBytesShown = 300;
constexpr size_t kAnswerBytesMax = 1 << 20;  // of a conversation that goes on
constexpr int32_t kHttpOk = 200;

}  // namespace

LoadCall::LoadCall(const Clock& clock, CallRecord record, int32_t cancel_after_tokens,
                   OnDone on_done)
    : clock_(clock),
      cancel_after_tokens_(cancel_after_tokens),
      on_done_(std::move(on_done)),
      record_(std::move(record)) {}

bool LoadCall::OnBytes(int32_t status, std::string_view bytes) {
  const int64_t now_ns = clock_.NowNs();
  if (tokens_ == 0) {
    body_begin_ += bytes.substr(0, kBodyBytesShown - std::min(kBodyBytesShown, body_begin_.size()));
  }
  if (status != kHttpOk) return true;
  if (!reader_.Feed(bytes, [&](std::string_view data) { OnEvent(data, now_ns); })) {
    Fail("bad event", fmt::format("an event of more than {} bytes", SseReader::kEventBytesMax));
  }
  return record_.outcome == CallOutcome::kOk;
}

void LoadCall::OnEvent(std::string_view data, int64_t now_ns) {
  if (record_.outcome != CallOutcome::kOk || done_) return;
  StatusOr<StreamEvent> event = ParseStreamEvent(data);
  if (!event.ok()) return Fail("bad event", Message(event.status()));
  if (!event->error.empty()) return Fail("error in the stream", event->error);
  done_ = event->done;
  if (event->usage) {
    record_.has_usage = true;
    record_.input_tokens = event->usage->input_tokens;
    record_.output_tokens = event->usage->output_tokens;
    record_.cached_tokens = event->usage->cached_tokens;
  }
  if (event->has_choice) CountToken(*event, now_ns);
}

void LoadCall::CountToken(const StreamEvent& event, int64_t now_ns) {
  if (!event.finish_reason.empty()) record_.finish_reason = event.finish_reason;
  if (answer_.size() < kAnswerBytesMax) answer_ += event.text;
  // A chat begins with an event that only names the role, and a stream may end with one that only
  // says why; but in between a token may be without text, as half a character is.
  const bool has_token = !event.text.empty() || (tokens_ > 0 && event.finish_reason.empty());
  if (!has_token) return;
  ++tokens_;
  if (tokens_ == 1) {
    record_.first_token_ns = now_ns;
  } else {
    record_.gaps_ms.push_back(static_cast<float>(now_ns - record_.last_token_ns) * 1e-6F);
  }
  record_.last_token_ns = now_ns;
  if (cancel_after_tokens_ > 0 && tokens_ >= cancel_after_tokens_) {
    record_.outcome = CallOutcome::kCancelled;
  }
}

void LoadCall::Fail(std::string_view kind, std::string_view error) {
  record_.outcome = CallOutcome::kFailed;
  record_.error_kind = kind;
  record_.error = error;
}

void LoadCall::FailAtEnd(const HttpEnd& end) {
  switch (end.failure) {
    case HttpFailure::kConnect:
      return Fail("connect", end.message);
    case HttpFailure::kTimeout:
      return Fail("timeout", end.message);
    case HttpFailure::kBroken:
      return Fail("broken connection", end.message);
    case HttpFailure::kNone:
    case HttpFailure::kDropped:
      break;
  }
  if (end.status != kHttpOk) {
    return Fail(fmt::format("http {}", end.status), body_begin_);
  }
  if (!end.content_type.starts_with("text/event-stream")) {
    return Fail("no event stream", fmt::format("the answer is {}, not text/event-stream: {}",
                                               end.content_type, body_begin_));
  }
  if (!done_ && record_.finish_reason.empty()) {
    return Fail("unfinished stream", "the stream ended without [DONE] and without a finish_reason");
  }
  if (tokens_ == 0) return Fail("no token", "the stream ended without a token");
}

void LoadCall::OnEnd(const HttpEnd& end) {
  record_.sent_ns = end.sent_ns;
  record_.end_ns = clock_.NowNs();
  if (record_.outcome == CallOutcome::kOk) FailAtEnd(end);
  if (!record_.has_usage) record_.output_tokens = tokens_;
  on_done_(std::move(record_), std::move(answer_));
}

}  // namespace polysil

#include "gateway/generation.h"

#include <utility>

#include "gateway/error_reply.h"

namespace polysil {

Generation::Generation(TextService& service, std::shared_ptr<Exchange> exchange, OpenAiCall call,
                       ReplyIdentity identity)
    : service_(service),
      exchange_(std::move(exchange)),
      call_(std::move(call.call)),
      ledger_(call_.ledger),
      form_(call.form),
      reply_(form_, std::move(identity), static_cast<int32_t>(call_.sequences)) {}

void Generation::Start() {
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;  // while the text waited for its thread
  }
  StatusOr<std::shared_ptr<TextCallHandle>> handle =
      service_.Start(std::move(call_), shared_from_this());
  if (!handle.ok()) {
    exchange_->Post([self = shared_from_this(), status = handle.status()] { self->Fail(status); });
    return;
  }
  bool gone = false;
  {
    std::lock_guard lock(mutex_);
    handle_ = *handle;
    gone = gone_;
  }
  if (gone) (*handle)->Cancel();
}

void Generation::Cancel() {
  std::shared_ptr<TextCallHandle> handle;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    deltas_.clear();
    handle = handle_;
  }
  if (handle != nullptr) handle->Cancel();
}

void Generation::OnDelta(TextDelta delta) {
  std::lock_guard lock(mutex_);
  if (gone_) return;
  deltas_.push_back(std::move(delta));
  PostDrain();
}

void Generation::OnEnd(TextEnd end) {
  std::lock_guard lock(mutex_);
  handle_.reset();
  if (gone_) return ledger_->Close();
  end_ = std::move(end);
  PostDrain();
}

void Generation::PostDrain() {
  if (std::exchange(drain_posted_, true)) return;
  exchange_->Post([self = shared_from_this()] { self->Drain(); });
}

void Generation::Drain() {
  std::vector<TextDelta> deltas;
  std::optional<TextEnd> end;
  {
    std::lock_guard lock(mutex_);
    drain_posted_ = false;
    deltas.swap(deltas_);
    end = std::exchange(end_, std::nullopt);
  }
  Write(std::move(deltas));
  if (end) Finish(*end);
}

void Generation::Write(std::vector<TextDelta> deltas) {
  if (deltas.empty()) return;
  if (!form_.stream) {
    for (TextDelta& delta : deltas) reply_.Collect(std::move(delta));
    return;
  }
  std::string events;
  for (const TextDelta& delta : deltas) events += reply_.Events(delta);
  if (events.empty()) return;
  const bool first = !std::exchange(stream_begun_, true);
  if (first) exchange_->BeginStream("text/event-stream");
  exchange_->Write(events);
  if (first) exchange_->WhenSent([ledger = ledger_] { ledger->OnFirstTokenSent(); });
}

void Generation::Finish(const TextEnd& end) {
  if (!end.status.ok()) {
    return Fail(end.status);
  }
  if (!form_.stream) {
    exchange_->Reply({.body = reply_.Whole(end.usage, ledger_->latency())});
  } else {
    exchange_->Write(reply_.LastEvents(end.usage, ledger_->latency()));
    exchange_->EndStream();
  }
  CloseLedger();
}

// After the first byte the failure is an event, and no end mark follows.
void Generation::Fail(const Status& status) {
  if (!stream_begun_) {
    exchange_->Reply(ErrorReply(status, service_.RetryAfterSeconds(status)));
  } else {
    exchange_->Write("data: " + ErrorJson(status) + "\n\n");
    exchange_->EndStream();
  }
  CloseLedger();
}

void Generation::CloseLedger() {
  exchange_->WhenSent([ledger = ledger_] { ledger->Close(); });
}

}  // namespace polysil

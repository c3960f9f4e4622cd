#include "server/generate_stream.h"

#include <grpcpp/server_context.h>

#include <iterator>
#include <utility>

#include "base/log.h"
#include "server/call_end.h"
#include "server/caller.h"
#include "server/proto_call.h"

namespace polysil {
namespace {

// How long from now, if the client said. Far deadlines are none: the arithmetic stays in range.
std::optional<int64_t> TimeoutNs(const grpc::CallbackServerContext& context) {
  const auto left = context.deadline() - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
}

}  // namespace

class GenerateStream::Reactor final : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  Reactor(std::shared_ptr<GenerateStream> stream, grpc::CallbackServerContext* context)
      : stream_(std::move(stream)), context_(context) {}

  void OnWriteDone(bool ok) override { stream_->OnWritten(ok); }
  void OnCancel() override { stream_->Cancel(); }
  void OnDone() override { delete this; }

  void End(const Status& status, std::optional<int32_t> retry_after_seconds) {
    Finish(EndOf(status, retry_after_seconds, *context_));
  }
  // Ends the call also where the client takes nothing, and a write would wait for ever.
  void Abandon() { context_->TryCancel(); }

 private:
  const std::shared_ptr<GenerateStream> stream_;
  grpc::CallbackServerContext* const context_;
};

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerateStream::Start(
    TextService& service, grpc::CallbackServerContext* context, const v1::GenerateRequest* request,
    size_t output_bytes_max) {
  auto stream = std::make_shared<GenerateStream>(service, *request, output_bytes_max);
  // Deletes itself in OnDone.
  Reactor* const reactor = new Reactor(stream, context);
  stream->reactor_ = reactor;
  stream->ledger_ = service.OpenLedger(0, "");
  StatusOr<TextCall> call = ReadGenerateRequest(*request);
  if (!call.ok()) {
    service.CountRefused();
    stream->ledger_->OnRefused(call.status());
    stream->EndWith(call.status());
    return reactor;
  }
  call->timeout_ns = TimeoutNs(*context);
  call->caller = CallerOf(*context);
  call->ledger = stream->ledger_;
  // Shared, since std::function copies.
  auto shared_call = std::make_shared<TextCall>(*std::move(call));
  const Status status =
      service.Run(request->ByteSizeLong(), shared_call->caller,
                  [stream, shared_call] { stream->Submit(std::move(*shared_call)); });
  if (!status.ok()) {
    service.CountRefused();
    stream->ledger_->OnRefused(status);
    stream->EndWith(status);
  }
  return reactor;
}

GenerateStream::GenerateStream(TextService& service, const v1::GenerateRequest& request,
                               size_t output_bytes_max)
    : service_(service),
      begun_(std::chrono::steady_clock::now()),
      output_bytes_max_(output_bytes_max) {
  if (request.has_logprobs()) form_.set_logprobs(request.logprobs());
  form_.set_return_prompt_token_ids(request.return_prompt_token_ids());
}

void GenerateStream::Submit(TextCall call) {
  {
    std::lock_guard lock(mutex_);
    if (gone_) return ledger_->Close();  // while the text waited for its thread
  }
  StatusOr<std::shared_ptr<TextCallHandle>> handle =
      service_.Start(std::move(call), shared_from_this());
  if (!handle.ok()) {
    EndWith(handle.status());
    return;
  }
  bool gone = false;
  {
    std::lock_guard lock(mutex_);
    if (!end_) handle_ = *handle;
    gone = gone_;
  }
  if (gone) (*handle)->Cancel();
}

void GenerateStream::OnDelta(TextDelta delta) {
  Enqueue(WriteDelta(delta, form_));
}

void GenerateStream::OnEnd(TextEnd end) {
  if (end.status.ok()) Enqueue(WriteUsage(end.usage, ledger_->latency()));
  EndWith(std::move(end.status));
  std::unique_lock lock(mutex_);
  if (!gone_) return;
  lock.unlock();
  ledger_->Close();  // nothing more is written
}

void GenerateStream::Enqueue(v1::GenerateResponse response) {
  bool too_slow = false;
  {
    std::lock_guard lock(mutex_);
    if (gone_) return;
    queue_bytes_ += response.ByteSizeLong();
    queue_.push_back(std::move(response));
    too_slow = queue_bytes_ > output_bytes_max_;
    if (too_slow && reactor_ != nullptr) reactor_->Abandon();
  }
  too_slow ? Cancel() : Advance();
}

void GenerateStream::EndWith(Status status) {
  {
    std::lock_guard lock(mutex_);
    handle_.reset();
    if (!end_) end_ = std::move(status);
  }
  Advance();
}

// The client is gone: nothing of what waits is of use to it.
void GenerateStream::Cancel() {
  std::shared_ptr<TextCallHandle> handle;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    handle = handle_;
  }
  if (handle != nullptr) handle->Cancel();
  Advance();
}

void GenerateStream::OnWritten(bool ok) {
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    queue_bytes_ -= queue_.front().ByteSizeLong();
    queue_.pop_front();
  }
  if (ok) ledger_->OnFirstTokenSent();
  ok ? Advance() : Cancel();
}

GenerateStream::Step GenerateStream::NextStep() {
  if (reactor_ == nullptr || writing_) return Step::kNothing;
  if (gone_) return Step::kFinish;
  if (!queue_.empty()) return Step::kWrite;
  return end_ ? Step::kFinish : Step::kNothing;
}

// Writes the next message or finishes, if it is time. One thread at a time gets past the lock:
// writing_ or the missing reactor_ keeps the others out.
void GenerateStream::Advance() {
  Reactor* reactor = nullptr;
  const v1::GenerateResponse* message = nullptr;
  Status status;
  bool gone = false;
  {
    std::lock_guard lock(mutex_);
    gone = gone_;
    const Step step = NextStep();
    if (step == Step::kNothing) return;
    reactor = reactor_;
    if (step == Step::kWrite) {
      writing_ = true;
      message = &queue_.front();
    } else {
      reactor_ = nullptr;
      status = gone_ ? Cancelled("the client has gone or reads too slowly") : *end_;
    }
  }
  if (message != nullptr) {
    reactor->StartWrite(message);
    return;
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begun_);
  if (!gone) ledger_->Close();
  Log(LogLevel::kInfo, "grpc Generate {} {} ms", static_cast<int>(status.code()), elapsed.count());
  reactor->End(status, service_.RetryAfterSeconds(status));
}

}  // namespace polysil

#include "server/kv_event_feed.h"

#include <optional>
#include <utility>

#include "base/thread_name.h"
#include "server/call_end.h"
#include "server/proto_call.h"

namespace polysil {
namespace {

constexpr int32_t kBatchEventsMax = 256;
// How late a stop may be seen.
constexpr int64_t kWaitNs = 50'000'000;

}  // namespace

// One stream. Kept by its reactor and by the feed; called on any thread.
class KvEventFeed::Watcher final {
 public:
  Watcher(const TextService& service, uint64_t from) : service_(service), next_(from) {}

  void Bind(Reactor* reactor) { reactor_ = reactor; }
  // Writes the next batch or finishes, if it is time.
  void Advance();
  void OnWritten(bool ok);
  void End(Status status);
  bool ended() {
    std::lock_guard lock(mutex_);
    return reactor_ == nullptr;
  }

 private:
  const TextService& service_;
  std::mutex mutex_;
  Reactor* reactor_ = nullptr;  // null once it has finished
  bool writing_ = false;
  uint64_t next_;
  std::optional<Status> end_;
  v1::KvEventBatch message_;  // being written
};

class KvEventFeed::Reactor final : public grpc::ServerWriteReactor<v1::KvEventBatch> {
 public:
  Reactor(std::shared_ptr<Watcher> watcher, grpc::CallbackServerContext* context)
      : watcher_(std::move(watcher)), context_(context) {}
  void OnWriteDone(bool ok) override { watcher_->OnWritten(ok); }
  void OnCancel() override { watcher_->End(Cancelled("the client has gone")); }
  void OnDone() override { delete this; }

  void End(const Status& status, std::optional<int32_t> retry_after_seconds) {
    Finish(EndOf(status, retry_after_seconds, *context_));
  }

 private:
  const std::shared_ptr<Watcher> watcher_;
  grpc::CallbackServerContext* const context_;
};

void KvEventFeed::Watcher::Advance() {
  Reactor* reactor = nullptr;
  std::optional<Status> end;
  {
    std::lock_guard lock(mutex_);
    if (reactor_ == nullptr || writing_) return;
    reactor = reactor_;
    if (end_) {
      end = end_;
      reactor_ = nullptr;
    } else {
      const KvEventBatch batch = service_.ReadKvEvents(next_, kBatchEventsMax);
      if (batch.news.events.empty()) return;
      next_ = batch.first + batch.news.events.size();
      message_ = WriteKvEvents(batch);
      writing_ = true;
    }
  }
  end ? reactor->End(*end, service_.RetryAfterSeconds(*end)) : reactor->StartWrite(&message_);
}

void KvEventFeed::Watcher::OnWritten(bool ok) {
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok && !end_) end_ = Cancelled("the client has gone");
  }
  Advance();
}

void KvEventFeed::Watcher::End(Status status) {
  {
    std::lock_guard lock(mutex_);
    if (!end_) end_ = std::move(status);
  }
  Advance();
}

KvEventFeed::KvEventFeed(const TextSlot& slot) : slot_(slot), thread_([this] { Run(); }) {}

KvEventFeed::~KvEventFeed() {
  Stop();
}

grpc::ServerWriteReactor<v1::KvEventBatch>* KvEventFeed::Watch(grpc::CallbackServerContext* context,
                                                               uint64_t from) {
  auto watcher = std::make_shared<Watcher>(*slot_.get(), from);
  // Deletes itself in OnDone.
  auto* const reactor = new Reactor(watcher, context);
  watcher->Bind(reactor);
  bool stopping = false;
  {
    std::lock_guard lock(mutex_);
    stopping = stopping_;
    if (!stopping) watchers_.push_back(watcher);
  }
  changed_.notify_one();
  stopping ? watcher->End(Unavailable("the server is stopping")) : watcher->Advance();
  return reactor;
}

void KvEventFeed::Stop() {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    watchers = std::move(watchers_);
    watchers_.clear();
  }
  changed_.notify_one();
  for (const auto& watcher : watchers) watcher->End(Unavailable("the server is stopping"));
  if (thread_.joinable()) thread_.join();
}

void KvEventFeed::Run() {
  SetThreadName("kv-events");
  uint64_t seen = 0;
  while (WaitForWatchers()) {
    const uint64_t newest = slot_.get()->WaitKvEvent(seen + 1, kWaitNs);
    // Asked for after the wait: one that came during it may have seen less.
    if (newest > seen) {
      for (const auto& watcher : Watchers()) watcher->Advance();
    }
    seen = newest;
  }
}

bool KvEventFeed::WaitForWatchers() {
  std::unique_lock lock(mutex_);
  std::erase_if(watchers_, [](const auto& watcher) { return watcher->ended(); });
  changed_.wait(lock, [this] { return stopping_ || !watchers_.empty(); });
  return !stopping_;
}

std::vector<std::shared_ptr<KvEventFeed::Watcher>> KvEventFeed::Watchers() {
  std::lock_guard lock(mutex_);
  return watchers_;
}

}  // namespace polysil

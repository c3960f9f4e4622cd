#include "engine/outbox.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "polysil/base/check.h"

namespace polysil {
namespace {

// `later` came behind `waiting`, for the same sequence.
void Join(SequenceOutput& waiting, SequenceOutput later) {
  CHECK(!waiting.finish, "sequence {} of request {} goes on after its end", waiting.sequence_index,
        waiting.request.value);
  std::ranges::move(later.tokens, std::back_inserter(waiting.tokens));
  std::ranges::move(later.prompt_logprobs, std::back_inserter(waiting.prompt_logprobs));
  waiting.finish = later.finish;
  waiting.status = std::move(later.status);
  waiting.prompt_tokens_cached = later.prompt_tokens_cached;
  waiting.latency = later.latency;
}

}  // namespace

void Outbox::Open(RequestId id, int32_t sequences, std::shared_ptr<OutputSink> sink) {
  CHECK(sink != nullptr, "request {} has no sink", id.value);
  std::lock_guard lock(mutex_);
  OpenRequest request{.sink = std::move(sink), .finals_left = sequences};
  request.streams.resize(static_cast<size_t>(sequences));
  open_.emplace(id, std::move(request));
}

bool Outbox::TryMarkCancelled(RequestId id) {
  std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  return found != open_.end() && !std::exchange(found->second.cancelled, true);
}

bool Outbox::TryMarkStopped(RequestId id, int32_t sequence_index) {
  std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || sequence_index < 0) return false;
  std::vector<Stream>& streams = found->second.streams;
  if (static_cast<size_t>(sequence_index) >= streams.size()) return false;
  return !std::exchange(streams[static_cast<size_t>(sequence_index)].stopped, true);
}

void Outbox::Put(std::span<SequenceOutput> outputs) {
  if (outputs.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (SequenceOutput& output : outputs) {
      const auto found = open_.find(output.request);
      CHECK(found != open_.end(), "an output for request {}, which is over", output.request.value);
      const int32_t index = output.sequence_index;
      std::optional<SequenceOutput>& pending =
          found->second.streams[static_cast<size_t>(index)].pending;
      if (pending) {
        Join(*pending, std::move(output));
      } else {
        ready_.push_back(Ready{output.request, index});
        pending = std::move(output);
      }
    }
  }
  changed_.notify_one();
}

std::optional<Outbox::Delivery> Outbox::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || taken_ < taking_.size() || !ready_.empty(); });
  if (taken_ == taking_.size()) {
    taking_.clear();
    taken_ = 0;
    std::swap(taking_, ready_);
  }
  if (taking_.empty()) return std::nullopt;
  const Ready ready = taking_[taken_++];
  OpenRequest& request = open_.at(ready.request);
  std::optional<SequenceOutput>& pending =
      request.streams[static_cast<size_t>(ready.sequence_index)].pending;
  Delivery delivery{request.sink, std::move(*pending)};
  pending.reset();
  return delivery;
}

void Outbox::Finish(RequestId id) {
  std::shared_ptr<OutputSink> last;  // its destructor may be long; not under the lock
  {
    std::lock_guard lock(mutex_);
    const auto found = open_.find(id);
    CHECK(found != open_.end(), "request {} is over already", id.value);
    if (--found->second.finals_left > 0) return;
    last = std::move(found->second.sink);
    open_.erase(found);
    if (!open_.empty()) return;
  }
  emptied_.notify_all();
}

void Outbox::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

bool Outbox::WaitEmpty(int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  return emptied_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                           [this] { return open_.empty(); });
}

}  // namespace polysil

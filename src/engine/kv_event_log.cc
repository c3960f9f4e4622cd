#include "engine/kv_event_log.h"

#include <algorithm>
#include <chrono>

#include "polysil/base/check.h"

namespace polysil {

KvEventLog::KvEventLog(int32_t events_max, int32_t tokens_per_block)
    : tokens_per_block_(static_cast<size_t>(tokens_per_block)),
      events_(static_cast<size_t>(events_max)),
      tokens_(events_.size() * tokens_per_block_) {}

void KvEventLog::Append(const KvEvents& news) {
  if (news.events.empty()) return;
  {
    std::lock_guard lock(mutex_);
    size_t tokens_read = 0;
    for (const KvEvent& event : news.events) {
      const size_t place = Place(++last_);
      events_[place] = event;
      if (event.kind != KvEventKind::kStored) continue;
      CHECK(tokens_read + tokens_per_block_ <= news.tokens.size(), "{} tokens for the events",
            news.tokens.size());
      std::copy_n(news.tokens.begin() + static_cast<ptrdiff_t>(tokens_read), tokens_per_block_,
                  tokens_.begin() + static_cast<ptrdiff_t>(place * tokens_per_block_));
      tokens_read += tokens_per_block_;
    }
  }
  appended_.notify_all();
}

KvEventBatch KvEventLog::Read(uint64_t from, int32_t events_max) const {
  std::lock_guard lock(mutex_);
  const uint64_t oldest = last_ < events_.size() ? 1 : last_ - events_.size() + 1;
  from = from > last_ + 1 ? 1 : std::max<uint64_t>(from, 1);
  KvEventBatch batch{.first = std::max(from, oldest)};
  batch.lost = batch.first - from;
  for (uint64_t number = batch.first; number <= last_; ++number) {
    if (batch.news.events.size() == static_cast<size_t>(events_max)) break;
    const size_t place = Place(number);
    batch.news.events.push_back(events_[place]);
    if (events_[place].kind != KvEventKind::kStored) continue;
    const auto tokens = tokens_.begin() + static_cast<ptrdiff_t>(place * tokens_per_block_);
    batch.news.tokens.insert(batch.news.tokens.end(), tokens,
                             tokens + static_cast<ptrdiff_t>(tokens_per_block_));
  }
  return batch;
}

uint64_t KvEventLog::Wait(uint64_t number, int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  appended_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return last_ >= number; });
  return last_;
}

}  // namespace polysil

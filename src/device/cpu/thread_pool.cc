#include "device/cpu/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace polysil {
namespace {

// About 50 to 100 us of pauses: longer than the serial stretches inside a step, shorter than the
// pause between two steps that is worth giving the core away for.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int32_t threads) : shares_(static_cast<size_t>(threads)) {
  for (int32_t rank = 1; rank < threads; ++rank) {
    workers_.emplace_back([this, rank] { Work(rank); });
    pthread_setname_np(workers_.back().native_handle(), fmt::format("compute-{}", rank).c_str());
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  epoch_ += 1;
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Fork(int64_t tasks, Call call, const void* body) {
  call_ = call;
  body_ = body;
  const int64_t threads = this->threads();
  for (int64_t rank = 0; rank < threads; ++rank) {
    Share& share = shares_[static_cast<size_t>(rank)];
    share.next.store(tasks * rank / threads, std::memory_order_relaxed);
    share.end = tasks * (rank + 1) / threads;
  }
  open_ = true;
  epoch_ += 1;
  epoch_.notify_all();

  TakeTasks(0);

  // A worker counts itself inside before it looks at open_, so either it sees the job closed or its
  // count is seen here (both sides are sequentially consistent).
  open_ = false;
  for (int spins = 0;;) {
    const uint32_t inside = inside_;
    if (inside == 0) return;
    if (++spins < kSpins) {
      Pause();
    } else {
      inside_.wait(inside);
    }
  }
}

void ThreadPool::TakeTasks(int32_t rank) {
  const size_t threads = shares_.size();
  for (size_t i = 0; i < threads; ++i) {
    Share& share = shares_[(static_cast<size_t>(rank) + i) % threads];
    // A look first: most shares are empty by the time that others come, and a look is cheap.
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t task = share.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= share.end) break;
      call_(body_, task, rank);
    }
  }
}

void ThreadPool::Work(int32_t rank) {
  uint32_t seen = 0;
  for (;;) {
    AwaitEpochAfter(seen);
    seen = epoch_;
    if (stopping_) return;
    inside_ += 1;
    if (open_) TakeTasks(rank);
    inside_ -= 1;
    inside_.notify_one();
  }
}

void ThreadPool::AwaitEpochAfter(uint32_t seen) const {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (epoch_ != seen) return;
    Pause();
  }
  epoch_.wait(seen);
}

}  // namespace polysil

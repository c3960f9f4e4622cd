#include "session/text_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/leaves_room.h"
#include "base/thread_name.h"

namespace polysil {

TextPool::TextPool(const TextPoolOptions& options) : options_(options) {
  threads_.reserve(static_cast<size_t>(options.threads));
  for (int32_t i = 0; i < options.threads; ++i) {
    threads_.emplace_back([this, i] {
      SetThreadName(fmt::format("text-{}", i));
      Work();
    });
  }
}

TextPool::~TextPool() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    turns_.clear();
    tasks_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool TextPool::TryPost(const std::string& tenant, std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    const auto found = tasks_.find(tenant);
    const auto held = found == tasks_.end() ? 0 : static_cast<int64_t>(found->second.size());
    const int32_t left = options_.queue_max - waiting_;
    if (left <= 0 || (options_.tenants_leave_room && !LeavesRoom(held, 1, left))) return false;
    if (held == 0) turns_.push_back(tenant);
    tasks_[tenant].push_back(std::move(task));
    ++waiting_;
    ++unfinished_;
  }
  changed_.notify_one();
  return true;
}

void TextPool::RunHere(const std::function<void()>& task) {
  {
    std::lock_guard lock(mutex_);
    ++unfinished_;
  }
  task();
  End();
}

bool TextPool::WaitIdle(int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                        [this] { return unfinished_ == 0; });
}

void TextPool::Work() {
  while (std::function<void()> task = TakeNext()) {
    task();
    task = nullptr;
    End();
  }
}

// Empty: the pool is closed.
std::function<void()> TextPool::TakeNext() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !turns_.empty(); });
  if (closed_) return nullptr;
  const std::string tenant = std::move(turns_.front());
  turns_.pop_front();
  const auto found = tasks_.find(tenant);
  std::function<void()> task = std::move(found->second.front());
  found->second.pop_front();
  --waiting_;
  if (found->second.empty()) {
    tasks_.erase(found);
  } else {
    turns_.push_back(tenant);
  }
  return task;
}

void TextPool::End() {
  std::lock_guard lock(mutex_);
  if (--unfinished_ == 0) idle_.notify_all();
}

}  // namespace polysil

#include "session/text_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/thread_name.h"

namespace polysil {

TextPool::TextPool(int32_t threads, size_t queue_max) : tasks_(queue_max) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int32_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i] {
      SetThreadName(fmt::format("text-{}", i));
      while (auto task = tasks_.Pop()) {
        (*task)();
        task.reset();
        End();
      }
    });
  }
}

TextPool::~TextPool() {
  tasks_.Close();
  while (tasks_.TryPop()) {
  }
  for (std::thread& thread : threads_) thread.join();
}

bool TextPool::TryPost(std::function<void()> task) {
  Begin();
  if (tasks_.TryPush(std::move(task))) return true;
  End();
  return false;
}

void TextPool::RunHere(const std::function<void()>& task) {
  Begin();
  task();
  End();
}

bool TextPool::WaitIdle(int64_t timeout_ns) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                        [this] { return unfinished_ == 0; });
}

void TextPool::Begin() {
  std::lock_guard lock(mutex_);
  ++unfinished_;
}

void TextPool::End() {
  std::lock_guard lock(mutex_);
  if (--unfinished_ == 0) idle_.notify_all();
}

}  // namespace polysil

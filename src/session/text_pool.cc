#include "session/text_pool.h"

#include <fmt/format.h>

#include "base/thread_name.h"

namespace polysil {

TextPool::TextPool(int32_t threads, size_t queue_max) : tasks_(queue_max) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int32_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i] {
      SetThreadName(fmt::format("text-{}", i));
      while (auto task = tasks_.Pop()) (*task)();
    });
  }
}

TextPool::~TextPool() {
  tasks_.Close();
  while (tasks_.TryPop()) {
  }
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace polysil

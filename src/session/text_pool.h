// TextPool: a few threads for texts that take too long for a thread that also serves streams.
// Bounded: at the bound it says no. Owned by TextService; Post from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace polysil {

class TextPool final {
 public:
  TextPool(int32_t threads, size_t queue_max);
  // Ends what runs, drops what waits.
  ~TextPool();
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  [[nodiscard]] bool TryPost(std::function<void()> task) { return tasks_.TryPush(std::move(task)); }

 private:
  BoundedQueue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace polysil

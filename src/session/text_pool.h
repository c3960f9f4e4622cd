// TextPool: a few threads for texts that take too long for a thread that also serves streams.
// Bounded: at the bound it says no. Owned by TextService; Post from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
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

  // False: too many wait.
  [[nodiscard]] bool TryPost(std::function<void()> task);
  // On the calling thread, as work of the pool.
  void RunHere(const std::function<void()>& task);
  // Waits until nothing runs or waits, at most so long. True if so.
  bool WaitIdle(int64_t timeout_ns) const;

 private:
  void Begin();
  void End();

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable idle_;
  int64_t unfinished_ = 0;  // tasks that run or wait

  BoundedQueue<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
};

}  // namespace polysil

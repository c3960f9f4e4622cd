// TextPool: a few threads for texts that take too long for a thread that also serves streams.
// Bounded: at the bound it says no. Tenants take turns, and none of them takes all places. Owned by
// TextService; Post from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace polysil {

struct TextPoolOptions {
  int32_t threads = 2;
  int32_t queue_max = 64;           // tasks that may wait
  bool tenants_leave_room = false;  // see LeavesRoom
};

class TextPool final {
 public:
  explicit TextPool(const TextPoolOptions& options);
  // Ends what runs, drops what waits.
  ~TextPool();
  TextPool(const TextPool&) = delete;
  TextPool& operator=(const TextPool&) = delete;

  // False: too many wait, or too many of this tenant.
  [[nodiscard]] bool TryPost(const std::string& tenant, std::function<void()> task);
  // On the calling thread, as work of the pool.
  void RunHere(const std::function<void()>& task);
  // Waits until nothing runs or waits, at most so long. True if so.
  bool WaitIdle(int64_t timeout_ns) const;

 private:
  void Work();
  std::function<void()> TakeNext();
  void End();

  const TextPoolOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  mutable std::condition_variable idle_;
  int64_t unfinished_ = 0;  // tasks that run or wait
  int32_t waiting_ = 0;
  std::map<std::string, std::deque<std::function<void()>>> tasks_;  // by tenant; none is empty
  std::deque<std::string> turns_;                                   // their tenants, the next first
  bool closed_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace polysil

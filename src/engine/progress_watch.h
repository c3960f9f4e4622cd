// ProgressWatch: whether the engine moves, told from outside its threads. Each thread leaves the
// time since which it has been at one thing; a thread that is stuck leaves it standing, and whoever
// asks sees its age. Thread-safe, no locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace polysil {

class ProgressWatch final {
 public:
  // One thing under way: since when, or not at all.
  class Mark final {
   public:
    void Begin(int64_t now_ns) { since_ns_.store(now_ns, std::memory_order_relaxed); }
    // Keeps an earlier beginning.
    void BeginIfIdle(int64_t now_ns) {
      int64_t idle = kIdle;
      since_ns_.compare_exchange_strong(idle, now_ns, std::memory_order_relaxed);
    }
    int64_t since_ns() const { return since_ns_.load(std::memory_order_relaxed); }
    void End() { since_ns_.store(kIdle, std::memory_order_relaxed); }
    bool IsOlderThan(int64_t age_ns, int64_t now_ns) const {
      const int64_t since = since_ns();
      return since != kIdle && now_ns - since > age_ns;
    }

   private:
    static constexpr int64_t kIdle = INT64_MIN;
    std::atomic<int64_t> since_ns_{kIdle};
  };

  explicit ProgressWatch(int64_t stall_ns) : stall_ns_(stall_ns) {}

  Mark& step() { return step_; }
  Mark& tick() { return tick_; }
  Mark& inbox() { return inbox_; }
  Mark& delivery() { return delivery_; }
  // The executor has done a part of the step that it works on.
  void Beat(int64_t now_ns) { beat_ns_.store(now_ns, std::memory_order_relaxed); }

  // What is stuck, as a sentence; empty: nothing.
  std::string Stall(int64_t now_ns) const;

 private:
  bool StepIsStuck(int64_t now_ns) const;

  const int64_t stall_ns_;
  Mark step_;  // a step is with the executor, and none has come back since
  std::atomic<int64_t> beat_ns_{INT64_MIN};
  Mark tick_;      // the engine thread works
  Mark inbox_;     // an input waits for the engine thread
  Mark delivery_;  // the output thread is inside a sink
};

}  // namespace polysil

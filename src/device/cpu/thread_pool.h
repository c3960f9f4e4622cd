// ThreadPool: fork and join with low latency over a few threads. The calling thread is rank 0 and
// works too; the others are named compute-1, compute-2, ... A waiting thread spins for some tens of
// microseconds and then sleeps on a futex, so an idle process uses no CPU. The join never waits for
// a thread that has not started to work: one that wakes late finds the job closed. Run is called by
// one thread at a time (the device's worker).
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace polysil {

class ThreadPool final {
 public:
  // threads >= 1, the caller included.
  explicit ThreadPool(int32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t threads() const { return static_cast<int32_t>(workers_.size()) + 1; }

  // Calls body(task, rank) once for every task in [0, tasks), spread over the threads, and returns
  // when all are done. Each thread begins with a share of its own, in rising order, so that it
  // walks through memory; one that is done takes from the others' shares.
  template <typename Body>
  void Run(int64_t tasks, const Body& body) {
    if (tasks <= 1 || workers_.empty()) {
      for (int64_t task = 0; task < tasks; ++task) body(task, 0);
      return;
    }
    Fork(
        tasks,
        [](const void* erased, int64_t task, int32_t rank) {
          (*static_cast<const Body*>(erased))(task, rank);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* body, int64_t task, int32_t rank);

  void Fork(int64_t tasks, Call call, const void* body);
  void Work(int32_t rank);
  void TakeTasks(int32_t rank);
  void AwaitEpochAfter(uint32_t seen) const;

  // The job: written by Fork while no thread is inside, read by threads that found it open.
  Call call_ = nullptr;
  const void* body_ = nullptr;

  // Each on a cache line of its own: threads hammer on them from both sides.
  struct alignas(64) Share {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };
  std::vector<Share> shares_;                    // by rank
  alignas(64) std::atomic<uint32_t> epoch_ = 0;  // rises with every job, and to stop
  std::atomic<bool> open_ = false;               // a job may be joined
  std::atomic<bool> stopping_ = false;
  alignas(64) std::atomic<uint32_t> inside_ = 0;  // workers that may be reading the job

  std::vector<std::thread> workers_;
};

}  // namespace polysil

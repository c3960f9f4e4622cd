#include "device/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace polysil {
namespace {

TEST(ThreadPool, EveryTaskRunsOnce) {
  for (const int32_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tasks : {0, 1, 2, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
      pool.Run(tasks, [&](int64_t task, int32_t rank) {
        ASSERT_GE(rank, 0);
        ASSERT_LT(rank, threads);
        ++runs[static_cast<size_t>(task)];
      });
      for (const std::atomic<int>& count : runs) ASSERT_EQ(count, 1);
    }
  }
}

// Jobs in quick succession, of which each must see the writes of the one before.
TEST(ThreadPool, ManyJobs) {
  ThreadPool pool(3);
  std::array<int64_t, 5> values = {};
  for (int64_t job = 0; job < 20000; ++job) {
    pool.Run(5, [&](int64_t task, int32_t) {
      auto& value = values[static_cast<size_t>(task)];
      ASSERT_EQ(value, job);
      ++value;
    });
  }
  for (const int64_t value : values) EXPECT_EQ(value, 20000);
}

// A rank is one thread at a time: scratch by rank needs no lock.
TEST(ThreadPool, ARankIsOneThread) {
  ThreadPool pool(4);
  std::array<std::atomic<bool>, 4> busy = {};
  for (int job = 0; job < 500; ++job) {
    pool.Run(40, [&](int64_t, int32_t rank) {
      ASSERT_FALSE(busy[static_cast<size_t>(rank)].exchange(true));
      busy[static_cast<size_t>(rank)] = false;
    });
  }
}

// The threads of this process with a name, and their states in /proc.
std::vector<char> StatesOf(const std::string& prefix) {
  std::vector<char> states;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    const size_t open = line.find('(');
    const size_t close = line.rfind(')');
    if (close == std::string::npos || line.compare(open + 1, prefix.size(), prefix) != 0) continue;
    states.push_back(line[close + 2]);
  }
  return states;
}

TEST(ThreadPool, ThreadsAreNamedAndSleepWhenIdle) {
  ThreadPool pool(3);
  pool.Run(10, [](int64_t, int32_t) {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<char> states;
  while (std::chrono::steady_clock::now() < deadline) {
    states = StatesOf("compute-");
    if (states == std::vector<char>{'S', 'S'}) break;
  }
  EXPECT_EQ(states, (std::vector<char>{'S', 'S'}));
  int64_t runs = 0;  // and they wake again
  pool.Run(1, [&](int64_t, int32_t) { ++runs; });
  std::atomic<int64_t> more = 0;
  pool.Run(100, [&](int64_t, int32_t) { ++more; });
  EXPECT_EQ(runs + more, 101);
}

}  // namespace
}  // namespace polysil

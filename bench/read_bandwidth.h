// The bound of all that streams through memory: what some threads read of it, measured.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace polysil {

inline double ReadAll(const std::vector<uint64_t>& words, int32_t threads) {
  std::vector<std::thread> pool;
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  const auto start = std::chrono::steady_clock::now();
  for (int32_t t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      const size_t part = words.size() / static_cast<size_t>(threads);
      const uint64_t* from = words.data() + static_cast<size_t>(t) * part;
      uint64_t sum[8] = {};
      for (size_t i = 0; i + 8 <= part; i += 8) {
        for (size_t lane = 0; lane < 8; ++lane) sum[lane] += from[i + lane];
      }
      for (const uint64_t lane : sum) sums[static_cast<size_t>(t)] += lane;
    });
  }
  for (auto& thread : pool) thread.join();
  benchmark::DoNotOptimize(sums);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(words.size() * sizeof(uint64_t)) / seconds.count();
}

// Median of some passes, in bytes per second; measured anew by every benchmark that divides by it.
inline double ReadBandwidth(int32_t threads) {
  static const std::vector<uint64_t> words(size_t{256} << 17, 1);  // 256 MiB: beyond any cache
  std::vector<double> passes;
  for (int i = 0; i < 7; ++i) passes.push_back(ReadAll(words, threads));
  std::sort(passes.begin(), passes.end());
  return passes[passes.size() / 2];
}

}  // namespace polysil

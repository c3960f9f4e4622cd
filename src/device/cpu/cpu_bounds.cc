#include "device/cpu/cpu_bounds.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/cpu_topology.h"

namespace polysil {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kReadBytesMin = int64_t{256} << 20;
constexpr int64_t kReadBytesMax = int64_t{2} << 30;
constexpr int64_t kReadGranule = 4096;

// Runs work(index) on so many threads at the same moment, several times; seconds of each pass, from
// the first begin to the last end. The threads read the clock themselves: the caller may be late.
std::vector<double> TimePasses(const CpuTopology& topology, int32_t threads, int32_t passes,
                               const std::function<void(int32_t)>& work) {
  const auto lanes = static_cast<size_t>(threads);
  std::vector<steady_clock::time_point> begins(lanes * static_cast<size_t>(passes));
  std::vector<steady_clock::time_point> ends(begins.size());
  std::barrier start(threads);
  std::vector<std::thread> pool;
  pool.reserve(lanes);
  for (int32_t t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      topology.BindThread(t);
      for (int32_t pass = 0; pass < passes; ++pass) {
        const auto slot = static_cast<size_t>(pass) * lanes + static_cast<size_t>(t);
        start.arrive_and_wait();
        begins[slot] = steady_clock::now();
        work(t);
        ends[slot] = steady_clock::now();
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
  std::vector<double> seconds;
  for (int32_t pass = 0; pass < passes; ++pass) {
    const auto first = static_cast<std::ptrdiff_t>(pass) * threads;
    const auto begin = *std::min_element(begins.begin() + first, begins.begin() + first + threads);
    const auto end = *std::max_element(ends.begin() + first, ends.begin() + first + threads);
    seconds.push_back(std::chrono::duration<double>(end - begin).count());
  }
  return seconds;
}

RateSamples RatesOf(double amount, const std::vector<double>& seconds) {
  RateSamples rates;
  for (const double pass : seconds) rates.Add(amount / pass);
  return rates;
}

int64_t ReadBytes(const CpuBoundsOptions& options, const CpuTopology& topology) {
  const int64_t wanted = options.read_bytes > 0
                             ? options.read_bytes
                             : std::clamp(4 * topology.l3_bytes(), kReadBytesMin, kReadBytesMax);
  const int64_t granule = kReadGranule * options.threads;
  return std::max(granule, wanted / granule * granule);
}

}  // namespace

void RateSamples::Add(const RateSamples& other) {
  rates_.insert(rates_.end(), other.rates_.begin(), other.rates_.end());
}

double RateSamples::best() const {
  return rates_.empty() ? 0.0 : *std::max_element(rates_.begin(), rates_.end());
}

double RateSamples::worst() const {
  return rates_.empty() ? 0.0 : *std::min_element(rates_.begin(), rates_.end());
}

double RateSamples::median() const {
  if (rates_.empty()) return 0.0;
  std::vector<double> sorted = rates_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

void CpuBounds::Add(const CpuBounds& other) {
  read_one.Add(other.read_one);
  read_all.Add(other.read_all);
  int8_operations.Add(other.int8_operations);
  float_operations.Add(other.float_operations);
}

StatusOr<CpuBounds> MeasureCpuBounds(const CpuBoundsOptions& options) {
  if (options.threads < 1 || options.passes < 1) {
    return InvalidArgument("{} threads and {} passes measure nothing", options.threads,
                           options.passes);
  }
  const CpuTopology topology;
  const kernels::PeakKernels& peaks = kernels::PeakKernelsFor(options.isa);
  std::atomic<uint64_t> sink = 0;  // so that the work has a use
  CpuBounds bounds{.threads = options.threads};

  const int64_t bytes = ReadBytes(options, topology);
  AlignedMemory memory = AlignedMemory::Allocate(bytes);
  if (memory.data() == nullptr) return ResourceExhausted("no memory for {} bytes", bytes);
  std::memset(memory.data(), 1, static_cast<size_t>(bytes));
  const auto read_with = [&](int32_t threads) {
    const int64_t part = bytes / threads / kReadGranule * kReadGranule;
    const auto seconds = TimePasses(topology, threads, options.passes, [&](int32_t t) {
      sink += peaks.read(memory.data() + t * part, part);
    });
    return RatesOf(static_cast<double>(part * threads), seconds);
  };
  bounds.read_one = read_with(1);
  bounds.read_all = read_with(options.threads);

  const auto compute = [&](int64_t operations, auto loops) {
    if (loops == nullptr) return RateSamples{};
    const auto seconds = TimePasses(topology, options.threads, options.passes, [&](int32_t) {
      sink += static_cast<uint64_t>(loops(options.loops));
    });
    return RatesOf(static_cast<double>(operations * options.loops * options.threads), seconds);
  };
  bounds.int8_operations = compute(peaks.int8_operations, peaks.int8_loops);
  bounds.float_operations = compute(peaks.float_operations, peaks.float_loops);
  return bounds;
}

}  // namespace polysil

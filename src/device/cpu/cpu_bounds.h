// CpuBounds: what this machine can do at best, measured: bytes read from memory and operations, per
// second. These are what speeds are divided by; no model runs here.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "polysil/base/status.h"

namespace polysil {

// Of several passes, each per second. Empty: the instruction set has no such thing.
class RateSamples final {
 public:
  void Add(double rate) { rates_.push_back(rate); }
  void Add(const RateSamples& other);
  bool empty() const { return rates_.empty(); }
  // 0 where there are none.
  double best() const;
  double median() const;
  double worst() const;

 private:
  std::vector<double> rates_;
};

struct CpuBounds {
  int32_t threads = 1;
  RateSamples read_one;          // bytes, by one thread
  RateSamples read_all;          // bytes, by all threads
  RateSamples int8_operations;   // by all threads
  RateSamples float_operations;  // by all threads

  // The passes of another measurement of the same machine.
  void Add(const CpuBounds& other);
};

struct CpuBoundsOptions {
  int32_t threads = 1;  // as many as the device has that is compared
  kernels::Isa isa = kernels::BestIsa();
  int32_t passes = 7;
  int64_t read_bytes = 0;     // of a pass; 0: several times the largest cache
  int64_t loops = 1'000'000;  // of a pass of arithmetic: some ten milliseconds
};

// Takes about a second and, for that time, a quarter of a GiB or more. Threads stay on a core each
// where there are enough of them. RESOURCE_EXHAUSTED: there is no such memory.
StatusOr<CpuBounds> MeasureCpuBounds(const CpuBoundsOptions& options);

}  // namespace polysil

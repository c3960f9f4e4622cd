// Peaks: what an instruction set can do at best, for measuring the bounds that speeds are divided
// by. Not part of any model's arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"

namespace polysil::kernels {

// Of one instruction set, on the calling thread. An operation is an addition or a multiplication.
struct PeakKernels {
  // The sum of the 64-bit words at `data`, 64-byte aligned. `bytes` is a multiple of 512.
  uint64_t (*read)(const std::byte* data, int64_t bytes);
  // Multiplies and adds in registers, in chains long enough to hide each other's latency. Every
  // product is 1, and the sum of all is given. Null where the set has nothing worth measuring.
  int64_t float_operations;  // of one loop
  double (*float_loops)(int64_t loops);
  // Products of 8-bit integers added in 32 bits: vpdpbusd, or vpmaddubsw + vpmaddwd + vpaddd.
  int64_t int8_operations;
  int64_t (*int8_loops)(int64_t loops);
};

// As with KernelsFor, the machine must run the set.
const PeakKernels& PeakKernelsFor(Isa isa);

}  // namespace polysil::kernels

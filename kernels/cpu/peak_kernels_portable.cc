#include <cstring>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/peak_kernels.h"

namespace polysil::kernels {
namespace {

constexpr int kSums = 8;

uint64_t Read(const std::byte* data, int64_t bytes) {
  uint64_t sums[kSums] = {};
  for (int64_t at = 0; at < bytes; at += int64_t{kSums} * 8) {
    uint64_t words[kSums];
    std::memcpy(words, data + at, sizeof(words));
    for (int i = 0; i < kSums; ++i) sums[i] += words[i];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

constexpr PeakKernels kPeaks = {.read = Read,
                                .float_operations = 0,
                                .float_loops = nullptr,
                                .int8_operations = 0,
                                .int8_loops = nullptr};

}  // namespace

const PeakKernels& PortablePeaks() {
  return kPeaks;
}

}  // namespace polysil::kernels

#include "kernels/cpu/peak_kernels.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace polysil::kernels {
namespace {

std::vector<Isa> IsasHere() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (Runs(isa)) isas.push_back(isa);
  }
  return isas;
}

struct alignas(64) Line {
  uint64_t words[8];
};

TEST(PeakKernels, EveryByteIsRead) {
  std::vector<Line> lines(40);
  uint64_t expected = 0;
  uint64_t value = 1;
  for (Line& line : lines) {
    for (uint64_t& word : line.words) {
      value = value * 6364136223846793005U + 1442695040888963407U;
      word = value;
      expected += word;
    }
  }
  const auto* data = reinterpret_cast<const std::byte*>(lines.data());
  for (const Isa isa : IsasHere()) {
    EXPECT_EQ(PeakKernelsFor(isa).read(data, 40 * 64), expected) << static_cast<int>(isa);
  }
}

// Half of the operations are products, each of them 1: the sum tells how many there were.
TEST(PeakKernels, AllOperationsAreDone) {
  for (const Isa isa : IsasHere()) {
    const PeakKernels& peaks = PeakKernelsFor(isa);
    EXPECT_EQ(peaks.float_loops != nullptr, isa != Isa::kPortable);
    EXPECT_EQ(peaks.int8_loops != nullptr, isa != Isa::kPortable);
    if (peaks.float_loops != nullptr) {
      EXPECT_EQ(peaks.float_loops(1000), static_cast<double>(500 * peaks.float_operations));
    }
    if (peaks.int8_loops != nullptr) {
      EXPECT_EQ(peaks.int8_loops(1000), 500 * peaks.int8_operations);
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

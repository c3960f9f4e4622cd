// Rounding of activations: error bounds, which blocks are wide, inputs that are not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/kernel_tables.h"
#include "kernels/random_data.h"

namespace polysil::kernels {
namespace {

constexpr int64_t kCols = 576;
constexpr int64_t kBlocks = kCols / kActivationBlock;

struct Int8Row {
  explicit Int8Row(const CpuKernels& kernels, const std::vector<float>& x)
      : blocks(kBlocks), lows(kCols, 99) {
    kernels.quantise_int8(x.data(), kCols, blocks.data(), lows.data());
  }
  int32_t q(int64_t c) const { return 256 * blocks[c / 32].highs[c % 32] + lows[c]; }

  std::vector<Int8Block> blocks;
  std::vector<int8_t> lows;
};

float Largest(const float* x) {
  float largest = 0;
  for (int i = 0; i < kActivationBlock; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

void ExpectFacts(const ActivationFacts& facts, const std::vector<int32_t>& q) {
  int32_t first = 0;
  int32_t sum = 0;
  for (int i = 0; i < kActivationBlock; ++i) {
    sum += q[i];
    if (i < 16) first += q[i];
  }
  EXPECT_EQ(facts.sum, sum);
  EXPECT_EQ(facts.first_sum, first);
  EXPECT_EQ(facts.scaled_sum, facts.scale * static_cast<float>(sum));
}

std::vector<float> RowWithOutliers() {
  std::vector<float> x = RandomFloats(kCols, 1);
  x[40] = 25.0F;
  x[300] = -60.0F;
  return x;
}

TEST(QuantiseInt8, EveryValueIsWithinHalfAStep) {
  const std::vector<float> x = RowWithOutliers();
  for (const NamedKernels& named : TestedKernels()) {
    const Int8Row row(*named.kernels, x);
    for (int64_t b = 0; b < kBlocks; ++b) {
      const bool wide = b == 40 / 32 || b == 300 / 32;
      EXPECT_EQ(row.blocks[b].wide != 0, wide) << named.name << " block " << b;
      const float largest = Largest(x.data() + b * 32);
      const float step = wide ? largest / 32512.0F : largest / 127.0F;
      std::vector<int32_t> q;
      for (int64_t c = b * 32; c < b * 32 + 32; ++c) {
        q.push_back(row.q(c));
        ASSERT_NEAR(row.blocks[b].facts.scale * static_cast<float>(q.back()), x[c], step * 0.5001F);
        if (!wide) {
          ASSERT_EQ(row.lows[c], 0);
        }
      }
      ExpectFacts(row.blocks[b].facts, q);
    }
  }
}

TEST(QuantiseInt8, AWideBlockReachesEveryLow) {
  std::vector<float> x(kCols, 0.0F);
  for (int64_t c = 0; c < 32; ++c) x[c] = 32512.0F;
  x[1] = 128.0F;  // 256 - 128
  x[2] = 127.0F;
  x[3] = -128.0F;
  x[4] = -129.0F;  // -256 + 127
  x[5] = -32512.0F;
  for (const NamedKernels& named : TestedKernels()) {
    const Int8Row row(*named.kernels, x);
    ASSERT_NE(row.blocks[0].wide, 0U);
    for (const int64_t c : {0, 1, 2, 3, 4, 5}) {
      EXPECT_EQ(row.q(c), static_cast<int32_t>(x[c])) << named.name;
    }
    EXPECT_EQ(row.lows[1], -128);
    EXPECT_EQ(row.lows[2], 127);
    EXPECT_EQ(row.blocks[0].highs[5], -127);
  }
}

TEST(QuantiseInt16, EveryValueIsWithinHalfAStep) {
  const std::vector<float> x = RowWithOutliers();
  for (const NamedKernels& named : TestedKernels()) {
    std::vector<Int16Block> blocks(kBlocks);
    named.kernels->quantise_int16(x.data(), kCols, blocks.data());
    for (int64_t b = 0; b < kBlocks; ++b) {
      const float step = Largest(x.data() + b * 32) / 32512.0F;
      const std::vector<int32_t> q(blocks[b].wholes, blocks[b].wholes + 32);
      for (int64_t i = 0; i < 32; ++i) {
        ASSERT_NEAR(blocks[b].facts.scale * static_cast<float>(q[i]), x[b * 32 + i], step * 0.501F);
      }
      ExpectFacts(blocks[b].facts, q);
    }
  }
}

TEST(Quantise, SameBitsOnEveryInstructionSet) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::vector<float> x = RandomFloats(kCols, seed, std::exp2f(static_cast<float>(seed) - 10));
    if (seed % 2 == 0) x[seed * 13] *= 20.0F;
    const Int8Row expected(KernelsFor(Isa::kPortable), x);
    std::vector<Int16Block> expected16(kBlocks);
    KernelsFor(Isa::kPortable).quantise_int16(x.data(), kCols, expected16.data());
    for (const NamedKernels& named : TestedKernels()) {
      const Int8Row row(*named.kernels, x);
      std::vector<Int16Block> row16(kBlocks);
      named.kernels->quantise_int16(x.data(), kCols, row16.data());
      ASSERT_EQ(row.lows, expected.lows) << named.name;
      for (int64_t b = 0; b < kBlocks; ++b) {
        ASSERT_EQ(std::memcmp(row.blocks[b].highs, expected.blocks[b].highs, 32), 0) << named.name;
        ASSERT_EQ(std::memcmp(&row.blocks[b].facts, &expected.blocks[b].facts, 16), 0);
        ASSERT_EQ(row.blocks[b].wide, expected.blocks[b].wide);
        ASSERT_EQ(std::memcmp(&row16[b], &expected16[b], sizeof(Int16Block)), 0) << named.name;
      }
    }
  }
}

TEST(Quantise, ZerosAndTheSmallestNumbersAreZero) {
  std::vector<float> x(kCols, 0.0F);
  for (int64_t c = 32; c < 64; ++c) x[c] = 1e-40F;
  for (const NamedKernels& named : TestedKernels()) {
    const Int8Row row(*named.kernels, x);
    for (int64_t b = 0; b < kBlocks; ++b) {
      EXPECT_EQ(row.blocks[b].facts.scale, 0.0F) << named.name;
      EXPECT_EQ(row.blocks[b].facts.sum, 0);
      for (int64_t c = b * 32; c < b * 32 + 32; ++c) EXPECT_EQ(row.q(c), 0);
    }
  }
}

TEST(Quantise, WhatIsNotFiniteStaysSo) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = RandomFloats(kCols, 2);
    x[70] = bad;
    for (const NamedKernels& named : TestedKernels()) {
      const Int8Row row(*named.kernels, x);
      EXPECT_TRUE(std::isnan(row.blocks[2].facts.scale)) << named.name;
      EXPECT_TRUE(std::isnan(row.blocks[2].facts.scaled_sum));
      std::vector<Int16Block> blocks(kBlocks);
      named.kernels->quantise_int16(x.data(), kCols, blocks.data());
      EXPECT_TRUE(std::isnan(blocks[2].facts.scale)) << named.name;
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

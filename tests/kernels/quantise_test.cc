// Rounding of activations: error bounds, which values are outliers, inputs that are not finite.
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
      : blocks(kBlocks), outliers(static_cast<size_t>(RowOutliersMax(kCols))) {
    const int32_t count = kernels.quantise_int8(x.data(), kCols, blocks.data(), outliers.data());
    outliers.resize(static_cast<size_t>(count));
  }
  int32_t q(int64_t c) const { return blocks[c / 32].values[c % 32]; }
  std::vector<int32_t> OutlierColumns() const {
    std::vector<int32_t> columns;
    for (const ActivationOutlier& outlier : outliers)
      columns.push_back(static_cast<int32_t>(outlier.column));
    return columns;
  }

  std::vector<Int8Block> blocks;
  std::vector<ActivationOutlier> outliers;
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

TEST(QuantiseInt8, EveryValueIsWithinHalfAStepOfThoseThatAreNoOutliers) {
  const std::vector<float> x = RowWithOutliers();
  std::vector<float> rest = x;
  rest[40] = rest[300] = 0.0F;
  for (const NamedKernels& named : TestedKernels()) {
    const Int8Row row(*named.kernels, x);
    ASSERT_EQ(row.OutlierColumns(), (std::vector<int32_t>{40, 300})) << named.name;
    EXPECT_EQ(row.outliers[0].x, x[40]);
    EXPECT_EQ(row.outliers[1].x, x[300]);
    for (int64_t b = 0; b < kBlocks; ++b) {
      const float step = Largest(rest.data() + b * 32) / 127.0F;
      std::vector<int32_t> q;
      for (int64_t c = b * 32; c < b * 32 + 32; ++c) {
        q.push_back(row.q(c));
        ASSERT_NEAR(row.blocks[b].facts.scale * static_cast<float>(q.back()), rest[c],
                    step * 0.5001F);
      }
      ExpectFacts(row.blocks[b].facts, q);
    }
  }
}

TEST(QuantiseInt8, TheLargestOfABlockAreItsOutliers) {
  std::vector<float> x(kCols, 0.001F);
  x[32] = 1.0F;
  x[40] = -3.0F;
  x[41] = 1.0F;  // as large as the one before, which comes first
  x[50] = 2.0F;
  x[63] = 0.9F;
  for (const NamedKernels& named : TestedKernels()) {
    const Int8Row row(*named.kernels, x);
    ASSERT_EQ(row.OutlierColumns(), (std::vector<int32_t>{32, 40, 50})) << named.name;
    EXPECT_EQ(row.blocks[1].facts.scale, 1.0F / 127.0F);
    EXPECT_EQ(row.q(41), 127);
    EXPECT_EQ(row.q(40), 0);
  }
}

// A row has room for as many as there can be.
TEST(QuantiseInt8, ABlockOfOutliersAloneIsZero) {
  std::vector<float> x(kCols, 0.0F);
  for (int64_t b = 0; b < 7; ++b) {
    for (int64_t i = 0; i < kBlockOutliersMax; ++i) x[b * 32 + 7 * i + 3] = 1.0F;
  }
  for (const NamedKernels& named : TestedKernels()) {
    const Int8Row row(*named.kernels, x);
    ASSERT_EQ(row.outliers.size(), 7U * kBlockOutliersMax) << named.name;
    for (int64_t b = 0; b < kBlocks; ++b) EXPECT_EQ(row.blocks[b].facts.scale, 0.0F);
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
      ASSERT_EQ(row.OutlierColumns(), expected.OutlierColumns()) << named.name;
      for (int64_t b = 0; b < kBlocks; ++b) {
        ASSERT_EQ(std::memcmp(&row.blocks[b], &expected.blocks[b], sizeof(Int8Block)), 0)
            << named.name;
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

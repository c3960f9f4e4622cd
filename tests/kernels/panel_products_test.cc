// Products with weight panels, every type on every instruction set, against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/product_rig.h"
#include "kernels/reference/reference.h"

namespace polysil::kernels {
namespace {

constexpr int64_t kWeightRows = 21;  // not a whole number of panels of 8 or 16
constexpr int64_t kCols = 512;

struct TypeCase {
  WeightType type;
  const char* name;
  // Largest error of an output as a fraction of the square root of the sum of (w x)^2: what
  // rounding activations may cost.
  double rounding_max;
};

constexpr double kFloatRounding = 3e-6;
constexpr double kInt8Rounding = 0.03;
constexpr double kInt16Rounding = 5e-4;
constexpr TypeCase kTypes[] = {
    {WeightType::kF32, "F32", kFloatRounding},
    {WeightType::kF16, "F16", kFloatRounding},
    {WeightType::kBF16, "BF16", kFloatRounding},
    {WeightType::kQ8_0, "Q8_0", kInt16Rounding},
    {WeightType::kQ4_0, "Q4_0", kInt8Rounding},
    {WeightType::kQ4_1, "Q4_1", kInt8Rounding},
    {WeightType::kQ5_0, "Q5_0", kInt8Rounding},
    {WeightType::kQ5_1, "Q5_1", kInt8Rounding},
    {WeightType::kQ2_K, "Q2_K", kInt8Rounding},
    {WeightType::kQ3_K, "Q3_K", kInt8Rounding},
    {WeightType::kQ4_K, "Q4_K", kInt8Rounding},
    {WeightType::kQ5_K, "Q5_K", kInt8Rounding},
    {WeightType::kQ6_K, "Q6_K", kInt8Rounding},
    {WeightType::kIQ4_NL, "IQ4_NL", kInt16Rounding},
    {WeightType::kIQ4_XS, "IQ4_XS", kInt16Rounding},
    {WeightType::kIQ3_S, "IQ3_S", kInt16Rounding},
    {WeightType::kIQ2_XS, "IQ2_XS", kInt16Rounding},
    {WeightType::kMXFP4, "MXFP4", kInt8Rounding},
};
static_assert(std::size(kTypes) == kWeightTypes);

void PrintTo(const TypeCase& c, std::ostream* out) {
  *out << c.name;
}

// x as the kernels round it.
std::vector<float> Rounded(const CpuKernels& kernels, ActivationType activation,
                           const std::vector<float>& x, int64_t cols) {
  if (activation == ActivationType::kFloat) return x;
  std::vector<float> rounded(x.size());
  const int64_t blocks = cols / kActivationBlock;
  std::vector<Int8Block> int8(static_cast<size_t>(blocks));
  std::vector<ActivationOutlier> outliers(static_cast<size_t>(RowOutliersMax(cols)));
  std::vector<Int16Block> int16(static_cast<size_t>(blocks));
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols)) {
    const int32_t count = kernels.quantise_int8(x.data() + row, cols, int8.data(), outliers.data());
    kernels.quantise_int16(x.data() + row, cols, int16.data());
    for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
      const Int8Block& block = int8[c / 32];
      rounded[row + c] =
          activation == ActivationType::kInt8
              ? block.facts.scale * static_cast<float>(block.values[c % 32])
              : int16[c / 32].facts.scale * static_cast<float>(int16[c / 32].wholes[c % 32]);
    }
    if (activation != ActivationType::kInt8) continue;
    for (int32_t i = 0; i < count; ++i) {
      rounded[row + static_cast<size_t>(outliers[i].column)] = outliers[i].x;
    }
  }
  return rounded;
}

// Square roots of the sums of squared products, which errors are measured against.
std::vector<double> ErrorUnits(const std::vector<float>& weights, const std::vector<float>& x) {
  std::vector<double> units;
  for (size_t row = 0; row < x.size(); row += kCols) {
    for (size_t w = 0; w < weights.size(); w += kCols) {
      double squares = 0;
      for (size_t c = 0; c < kCols; ++c) {
        const double product = static_cast<double>(weights[w + c]) * x[row + c];
        squares += product * product;
      }
      units.push_back(std::sqrt(squares) + 1e-30);
    }
  }
  return units;
}

class PanelProducts : public ::testing::TestWithParam<TypeCase> {
 protected:
  void SetUp() override {
    blocks_ = RandomBlocks(GetParam().type, kWeightRows * kCols, 17);
    weights_ = Dequantised(GetParam().type, blocks_, kWeightRows * kCols);
  }

  ProductRig Rig(const CpuKernels& kernels, bool exact = false) const {
    return ProductRig(kernels, GetParam().type, exact, blocks_, kWeightRows, kCols);
  }

  // Largest |out - weights . x| in error units.
  double WorstError(const std::vector<float>& out, const std::vector<float>& x) const {
    std::vector<float> expected(out.size());
    reference::MatMul(weights_.data(), x.data(), kWeightRows, kCols,
                      static_cast<int64_t>(x.size()) / kCols, expected.data());
    const std::vector<double> units = ErrorUnits(weights_, x);
    double worst = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const double error = std::abs(static_cast<double>(out[i]) - expected[i]) / units[i];
      worst = std::isnan(error) ? INFINITY : std::max(worst, error);
    }
    return worst;
  }

  std::vector<std::byte> blocks_;
  std::vector<float> weights_;
};

std::vector<float> WithOutliers(std::vector<float> x) {
  for (size_t i = 5; i < x.size(); i += 211) x[i] *= 30.0F;  // outliers
  return x;
}

TEST_P(PanelProducts, AreExactForTheRoundedActivations) {
  const std::vector<float> x = WithOutliers(RandomFloats(5 * kCols, 3));
  for (const NamedKernels& named : TestedKernels()) {
    const ProductRig rig = Rig(*named.kernels);
    const std::vector<float> rounded = Rounded(*named.kernels, rig.activation(), x, kCols);
    EXPECT_LT(WorstError(rig.Multiply(x), rounded), kFloatRounding) << named.name;
  }
}

TEST_P(PanelProducts, RoundingOfActivationsStaysInItsBound) {
  const std::vector<float> x = WithOutliers(RandomFloats(5 * kCols, 4));
  const std::vector<float> out = Rig(KernelsFor(BestIsa())).Multiply(x);
  EXPECT_LT(WorstError(out, x), GetParam().rounding_max);
}

TEST_P(PanelProducts, ExactPathUsesTheExactWeights) {
  const std::vector<float> x = WithOutliers(RandomFloats(5 * kCols, 5));
  for (const NamedKernels& named : TestedKernels()) {
    EXPECT_LT(WorstError(Rig(*named.kernels, true).Multiply(x), x), kFloatRounding) << named.name;
  }
}

TEST_P(PanelProducts, SameBitsOnEveryInstructionSet) {
  const std::vector<float> x = WithOutliers(RandomFloats(7 * kCols, 6));
  for (const bool exact : {false, true}) {
    std::vector<uint32_t> expected;
    for (const NamedKernels& named : TestedKernels()) {
      const std::vector<uint32_t> bits = BitsOf(Rig(*named.kernels, exact).Multiply(x));
      if (expected.empty()) expected = bits;
      EXPECT_EQ(bits, expected) << named.name << (exact ? " exact" : "");
    }
  }
}

TEST_P(PanelProducts, SameBitsAloneAndAmongOtherRows) {
  constexpr int64_t kRows = 17;
  const std::vector<float> x = WithOutliers(RandomFloats(kRows * kCols, 7));
  for (const NamedKernels& named : TestedKernels()) {
    const ProductRig rig = Rig(*named.kernels);
    std::vector<uint32_t> alone;
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> row(x.begin() + r * kCols, x.begin() + (r + 1) * kCols);
      const std::vector<uint32_t> bits = BitsOf(rig.Multiply(row));
      alone.insert(alone.end(), bits.begin(), bits.end());
    }
    for (int64_t rows = 1; rows <= kRows; ++rows) {
      const std::vector<float> some(x.begin(), x.begin() + rows * kCols);
      const std::vector<uint32_t> expected(alone.begin(), alone.begin() + rows * kWeightRows);
      ASSERT_EQ(BitsOf(rig.Multiply(some)), expected) << named.name << " rows " << rows;
    }
  }
}

// Integer sums at their limits: all weights the largest or smallest, all activations too.
TEST_P(PanelProducts, ExtremesDoNotSaturate) {
  for (const int fill : {0x00, 0x77, 0x80, 0xFF, 0x0F, 0xF0}) {
    if (BlockOf(GetParam().type).values == 1) continue;
    blocks_ = RandomBlocks(GetParam().type, kWeightRows * kCols, 8, fill);
    weights_ = Dequantised(GetParam().type, blocks_, kWeightRows * kCols);
    std::vector<float> x(4 * kCols);
    for (size_t i = 0; i < kCols; ++i) {
      x[i] = 1.0F;
      x[kCols + i] = -1.0F;
      x[2 * kCols + i] = i % 2 == 0 ? 1.0F : -1.0F;
      // One value is an outlier.
      x[3 * kCols + i] = i % 32 == 0 ? (i == 0 ? 100.0F : 0.0F) : i < 32 ? 0.3937F : 0.001F;
    }
    for (const NamedKernels& named : TestedKernels()) {
      const ProductRig rig = Rig(*named.kernels);
      const std::vector<float> rounded = Rounded(*named.kernels, rig.activation(), x, kCols);
      const std::vector<float> out = rig.Multiply(x);
      std::vector<float> expected(out.size());
      reference::MatMul(weights_.data(), rounded.data(), kWeightRows, kCols, 4, expected.data());
      for (size_t i = 0; i < out.size(); ++i) {
        double size = 0;  // of the terms, which here may cancel
        for (size_t c = 0; c < kCols; ++c) {
          size += std::abs(weights_[i % kWeightRows * kCols + c] *
                           rounded[i / kWeightRows * kCols + c]);
        }
        // Minimums and products are added apart, and each may be several times the sum.
        ASSERT_NEAR(out[i], expected[i], 1e-5 * size + 1e-6) << named.name << " fill " << fill;
      }
    }
  }
}

TEST_P(PanelProducts, BiasAndAccumulation) {
  const std::vector<float> x = RandomFloats(3 * kCols, 9);
  const std::vector<float> bias = RandomFloats(kWeightRows, 10);
  const std::vector<float> before = RandomFloats(3 * kWeightRows, 11);
  for (const NamedKernels& named : TestedKernels()) {
    const ProductRig rig = Rig(*named.kernels);
    const std::vector<float> plain = rig.Multiply(x);
    std::vector<float> out = before;
    rig.MultiplyInto(x, bias.data(), true, out);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], before[i] + (plain[i] + bias[i % kWeightRows])) << named.name;
    }
    rig.MultiplyInto(x, bias.data(), false, out);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], plain[i] + bias[i % kWeightRows]) << named.name;
    }
  }
}

TEST_P(PanelProducts, ARowThatIsNotFiniteSpoilsOnlyItself) {
  const std::vector<float> clean = RandomFloats(3 * kCols, 12);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = clean;
    x[kCols + 100] = bad;
    for (const NamedKernels& named : TestedKernels()) {
      const ProductRig rig = Rig(*named.kernels);
      const std::vector<float> expected = rig.Multiply(clean);
      const std::vector<float> out = rig.Multiply(x);
      for (size_t i = 0; i < out.size(); ++i) {
        if (i / kWeightRows == 1) {
          ASSERT_FALSE(std::isfinite(out[i])) << named.name << " output " << i;
        } else {
          ASSERT_EQ(out[i], expected[i]) << named.name;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PanelProducts, ::testing::ValuesIn(kTypes),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Widths from one block on, and matrices from one row on.
TEST(PanelShapes, EveryWidthAndHeight) {
  for (const NamedKernels& named : TestedKernels()) {
    for (const int64_t cols : {32, 64, 96, 224, 576}) {
      for (const int64_t weight_rows : {1, 7, 8, 9, 16, 17, 33}) {
        const auto blocks = RandomBlocks(WeightType::kQ4_1, weight_rows * cols, 13);
        const std::vector<float> weights =
            Dequantised(WeightType::kQ4_1, blocks, weight_rows * cols);
        const std::vector<float> x = RandomFloats(2 * cols, 14);
        const ProductRig rig(*named.kernels, WeightType::kQ4_1, false, blocks, weight_rows, cols);
        const std::vector<float> out = rig.Multiply(x);
        const std::vector<float> rounded = Rounded(*named.kernels, ActivationType::kInt8, x, cols);
        std::vector<float> expected(out.size());
        reference::MatMul(weights.data(), rounded.data(), weight_rows, cols, 2, expected.data());
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(out[i], expected[i], 1e-4) << named.name << " " << cols << " " << weight_rows;
        }
      }
    }
  }
}

// Float weights may have any number of columns.
TEST(PanelShapes, OddWidthsOfFloats) {
  for (const NamedKernels& named : TestedKernels()) {
    for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kBF16}) {
      for (const int64_t cols : {1, 2, 3, 31, 112}) {
        const auto blocks = RandomBlocks(type, 9 * cols, 15);
        const std::vector<float> weights = Dequantised(type, blocks, 9 * cols);
        const std::vector<float> x = RandomFloats(5 * cols, 16);
        const ProductRig rig(*named.kernels, type, false, blocks, 9, cols);
        const std::vector<float> out = rig.Multiply(x);
        std::vector<float> expected(out.size());
        reference::MatMul(weights.data(), x.data(), 9, cols, 5, expected.data());
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(out[i], expected[i], 1e-6) << named.name << " " << cols;
        }
      }
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

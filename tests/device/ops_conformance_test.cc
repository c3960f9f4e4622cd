// What every implementation of Ops must do, against the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "device/device_rig.h"
#include "kernels/reference/reference.h"

namespace polysil {
namespace {

// Of a sum of some hundred products, one after the other, in float.
constexpr double kChainRounding = 5e-6;

using kernels::BitsOf;
using kernels::RandomFloats;
namespace reference = kernels::reference;

class OpsConformance : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    device_ = MakeDevice(GetParam().options);
    ASSERT_NE(device_, nullptr);
  }
  Ops& ops() { return device_->ops(); }
  bool exact() const { return GetParam().options.activations == CpuActivations::kF32; }

  // y = W x through Linear, dense.
  std::vector<float> Product(const LoadedMatrix& weight, const std::vector<float>& x) {
    const int64_t cols = weight.matrix->cols();
    const auto rows = static_cast<int64_t>(x.size()) / cols;
    std::vector<float> y(static_cast<size_t>(rows * weight.matrix->rows()));
    const LinearTarget target = {
        .weight = weight.matrix.get(), .out = y.data(), .out_stride = weight.matrix->rows()};
    ops().Linear(x.data(), rows, cols, {&target, 1});
    return y;
  }

  std::unique_ptr<Device> device_;
};

// Largest error relative to the root of the sum of squared products of an output.
double WorstError(const std::vector<float>& y, const LoadedMatrix& weight,
                  const std::vector<float>& x) {
  const int64_t cols = weight.matrix->cols();
  const int64_t outs = weight.matrix->rows();
  std::vector<float> expected(y.size());
  reference::MatMul(weight.values.data(), x.data(), outs, cols,
                    static_cast<int64_t>(x.size()) / cols, expected.data());
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const float* w = weight.values.data() + static_cast<int64_t>(i) % outs * cols;
    const float* row = x.data() + static_cast<int64_t>(i) / outs * cols;
    double squares = 1e-30;
    for (int64_t c = 0; c < cols; ++c) squares += std::pow(static_cast<double>(w[c]) * row[c], 2);
    const double error = std::abs(static_cast<double>(y[i]) - expected[i]) / std::sqrt(squares);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

TEST_P(OpsConformance, LinearOfEveryType) {
  for (const DType dtype : kDTypes) {
    const LoadedMatrix weight(*device_, dtype, 83, 512, 1);
    const std::vector<float> x = RandomFloats(6 * 512, 2);
    EXPECT_LT(WorstError(Product(weight, x), weight, x), exact() ? kChainRounding : 0.03)
        << Info(dtype).name;
  }
}

TEST_P(OpsConformance, LinearOfSeveralTargets) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 256;
  const LoadedMatrix first(*device_, DType::kQ4_1, 40, kCols, 3);
  const LoadedMatrix second(*device_, DType::kQ8_0, 24, kCols, 4);
  const LoadedMatrix third(*device_, DType::kF16, 9, kCols, 5);
  const std::vector<float> x = RandomFloats(kRows * kCols, 6);
  const std::vector<float> bias = RandomFloats(24, 7);
  const std::vector<float> before = RandomFloats(kRows * 100, 8);
  std::vector<float> out = before;  // the three side by side in rows of 100
  const LinearTarget targets[] = {
      {.weight = first.matrix.get(), .out = out.data(), .out_stride = 100},
      {.weight = second.matrix.get(),
       .bias = bias.data(),
       .out = out.data() + 40,
       .out_stride = 100,
       .accumulate = true},
      {.weight = third.matrix.get(), .out = out.data() + 70, .out_stride = 100},
  };
  ops().Linear(x.data(), kRows, kCols, targets);
  const std::vector<float> first_alone = Product(first, x);
  const std::vector<float> second_alone = Product(second, x);
  const std::vector<float> third_alone = Product(third, x);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < 100; ++i) {
      const float was = before[r * 100 + i];
      const float expected = i < 40   ? first_alone[r * 40 + i]
                             : i < 64 ? was + (second_alone[r * 24 + i - 40] + bias[i - 40])
                             : i >= 70 && i < 79 ? third_alone[r * 9 + i - 70]
                                                 : was;
      ASSERT_EQ(out[r * 100 + i], expected) << "row " << r << " output " << i;
    }
  }
}

TEST_P(OpsConformance, LinearOfARowIsTheSameInAnyBatch) {
  constexpr int64_t kCols = 288;
  constexpr int64_t kRows = 300;  // more than go over the panels at once
  const LoadedMatrix weight(*device_, DType::kQ4_1, 130, kCols, 9);
  const std::vector<float> x = RandomFloats(kRows * kCols, 10);
  const std::vector<uint32_t> all = BitsOf(Product(weight, x));
  for (int64_t begin = 0; begin < kRows; begin += 37) {
    for (const int64_t rows : {1, 2, 3, 5, 17, 33}) {
      if (begin + rows > kRows) continue;
      const std::vector<float> some(x.begin() + begin * kCols, x.begin() + (begin + rows) * kCols);
      const std::vector<uint32_t> expected(all.begin() + begin * 130,
                                           all.begin() + (begin + rows) * 130);
      ASSERT_EQ(BitsOf(Product(weight, some)), expected) << begin << " " << rows;
    }
  }
}

TEST_P(OpsConformance, LinearOfNoRows) {
  const LoadedMatrix weight(*device_, DType::kF32, 8, 32, 11);
  EXPECT_TRUE(Product(weight, {}).empty());
}

TEST_P(OpsConformance, EmbedReadsTheExactRows) {
  for (const DType dtype : kDTypes) {
    const LoadedMatrix table(*device_, dtype, 50, 512, 12);
    std::vector<TokenId> ids;
    for (int32_t i = 0; i < 70; ++i) ids.push_back(i * 17 % 50);
    for (const float scale : {1.0F, 22.6F}) {
      std::vector<float> out(ids.size() * 512);
      ops().Embed(*table.table, ids, scale, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        const float value = table.values[static_cast<size_t>(ids[i / 512]) * 512 + i % 512];
        ASSERT_EQ(out[i], value * scale) << Info(dtype).name;
      }
    }
  }
}

TEST_P(OpsConformance, RmsNormOfManyRows) {
  constexpr int64_t kRows = 130;
  constexpr int64_t kCols = 576;
  const std::vector<float> x = RandomFloats(kRows * kCols, 13, 2.0F);
  const std::vector<float> weight = RandomFloats(kCols, 14);
  std::vector<float> expected(x.size());
  reference::RmsNorm(x.data(), weight.data(), 1.0F, 1e-6F, kRows, kCols, expected.data());
  std::vector<float> out = x;
  ops().RmsNorm(out.data(), weight.data(), 1.0F, 1e-6F, kRows, kCols, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_NEAR(out[i], expected[i], 1e-6 * (1 + std::abs(expected[i])));
  }
}

TEST_P(OpsConformance, RopeOfBothPairings) {
  for (const RopePairing pairing : {RopePairing::kHalves, RopePairing::kAdjacent}) {
    for (const int32_t dims : {64, 48, 2}) {
      RopeSpec rope = {.pairing = pairing, .dims = dims, .magnitude = 1.1F};
      for (int32_t i = 0; i < dims / 2; ++i) {
        rope.inv_freqs.push_back(
            std::pow(10000.0F, -2.0F * static_cast<float>(i) / static_cast<float>(dims)));
      }
      std::vector<int32_t> positions;
      for (int32_t i = 0; i < 100; ++i) positions.push_back(i * i % 8192);
      const std::vector<float> x = RandomFloats(100 * 3 * 64, 15);
      std::vector<float> expected = x;
      reference::Rope(expected.data(), positions.data(), rope.inv_freqs.data(), 100,
                      {3, 64, dims, pairing == RopePairing::kAdjacent, rope.magnitude});
      for (int pass = 0; pass < 2; ++pass) {  // angles computed, then found again
        std::vector<float> out = x;
        ops().Rope(out.data(), positions, 3, 64, rope);
        for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-5);
      }
    }
  }
}

TEST_P(OpsConformance, RopeTellsItsInputsApart) {
  // More sets than are kept, in turn, and sets that differ in one thing.
  std::vector<RopeSpec> ropes;
  for (int32_t i = 0; i < 7; ++i) {
    ropes.push_back({.dims = 4, .inv_freqs = {1.0F, 0.1F * static_cast<float>(i + 1)}});
  }
  ropes.push_back({.dims = 4, .inv_freqs = {1.0F, 0.1F}, .magnitude = 2.0F});
  for (int pass = 0; pass < 3; ++pass) {
    for (const RopeSpec& rope : ropes) {
      for (const std::vector<int32_t>& positions :
           {std::vector<int32_t>{5, 6}, std::vector<int32_t>{5, 7}, std::vector<int32_t>{5}}) {
        std::vector<float> out(positions.size() * 4, 1.0F);
        std::vector<float> expected = out;
        ops().Rope(out.data(), positions, 1, 4, rope);
        reference::Rope(expected.data(), positions.data(), rope.inv_freqs.data(),
                        static_cast<int64_t>(positions.size()), {1, 4, 4, false, rope.magnitude});
        for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-6);
      }
    }
  }
}

TEST_P(OpsConformance, ActivationsAddAndSoftCap) {
  constexpr int64_t kRows = 37;
  constexpr int64_t kCols = 1539;  // no whole sixteens
  const std::vector<float> gate = RandomFloats(kRows * kCols, 16, 3.0F);
  const std::vector<float> up = RandomFloats(kRows * kCols, 17);
  std::vector<float> expected(gate.size());
  std::vector<float> out = gate;
  reference::GatedSilu(gate.data(), up.data(), kRows * kCols, expected.data());
  ops().GatedActivation(Activation::kSilu, out.data(), up.data(), kRows, kCols, out.data());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-5);
  reference::GatedGeluTanh(gate.data(), up.data(), kRows * kCols, expected.data());
  ops().GatedActivation(Activation::kGeluTanh, gate.data(), up.data(), kRows, kCols, out.data());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-5);
  out = gate;
  ops().Add(out.data(), up.data(), kRows * kCols);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], gate[i] + up[i]);
  expected = gate;
  reference::SoftCap(expected.data(), 2.0F, kRows * kCols);
  out = gate;
  ops().SoftCap(out.data(), 2.0F, kRows * kCols);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-6);
}

TEST_P(OpsConformance, GatherRows) {
  const std::vector<float> x = RandomFloats(20 * 33, 18);
  const std::vector<int32_t> rows = {19, 0, 0, 7};
  std::vector<float> out(rows.size() * 33);
  ops().GatherRows(x.data(), rows, 33, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], x[static_cast<size_t>(rows[i / 33]) * 33 + i % 33]);
  }
}

TEST_P(OpsConformance, BuffersAreZeroedAndAligned) {
  for (const int64_t bytes : {0, 1, 63, 64, 1000, 5 << 20}) {
    auto buffer = device_->Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0U);
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ((*buffer)->data()[i], std::byte{0});
    if (bytes > 0) std::memset((*buffer)->data(), 1, static_cast<size_t>(bytes));
  }
  EXPECT_EQ(device_->Allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(device_->Allocate(INT64_MAX).ok());
  EXPECT_FALSE(device_->Allocate(INT64_MAX - 62).ok());
}

TEST_P(OpsConformance, MatricesOfImpossibleShapesAreRefused) {
  const std::vector<std::byte> some(1 << 16);
  const auto load = [&](DType dtype, int64_t rows, int64_t cols, bool data = true) {
    const HostTensor tensor = {dtype, rows, cols, data ? some.data() : nullptr};
    const StatusCode code = device_->LoadMatrix(tensor).status().code();
    EXPECT_EQ(device_->LoadTable(tensor).status().code(), code);
    return code;
  };
  EXPECT_EQ(load(DType::kF32, 4, 4), StatusCode::kOk);
  EXPECT_EQ(load(DType::kF32, 4, 4, false), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kF32, 0, 4), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kF32, 4, 0), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kF32, -4, 4), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kF32, 4, -4), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kQ4_1, 4, 33), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kQ4_K, 4, 128), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kF32, INT64_MAX, 2), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kF32, int64_t{1} << 32, int64_t{1} << 32), StatusCode::kInvalidArgument);
  EXPECT_EQ(load(DType::kQ8_0, int64_t{1} << 60, 32), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Devices, OpsConformance, ::testing::ValuesIn(DeviceCases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace polysil

// Norms, activations, rope and conversions against the reference, with the same bits on every
// instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "kernels/kernel_tables.h"
#include "kernels/random_data.h"
#include "kernels/reference/reference.h"

namespace polysil::kernels {
namespace {

constexpr int64_t kCounts[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 64, 112, 576};

// Runs on every instruction set; all must give the bits of the first, and be near to `expected`.
void ExpectSame(const std::vector<float>& expected, double tolerance,
                const std::function<std::vector<float>(const CpuKernels&)>& run) {
  std::vector<uint32_t> first;
  for (const NamedKernels& named : TestedKernels()) {
    const std::vector<float> out = run(*named.kernels);
    ASSERT_EQ(out.size(), expected.size());
    if (first.empty()) first = BitsOf(out);
    EXPECT_EQ(BitsOf(out), first) << named.name;
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], expected[i], tolerance * (std::abs(expected[i]) + 1e-6))
          << named.name << " element " << i;
    }
  }
}

TEST(RowKernels, RmsNorm) {
  for (const int64_t count : kCounts) {
    const std::vector<float> x = RandomFloats(count, 1, 3.0F);
    const std::vector<float> weight = RandomFloats(count, 2);
    std::vector<float> expected(x.size());
    reference::RmsNorm(x.data(), weight.data(), 1.0F, 1e-5F, 1, count, expected.data());
    ExpectSame(expected, 1e-6, [&](const CpuKernels& kernels) {
      std::vector<float> out = x;  // in place
      kernels.rms_norm(out.data(), weight.data(), 1.0F, 1e-5F, count, out.data());
      return out;
    });
  }
}

// From where activations vanish to where they are the identity.
std::vector<float> WideRange() {
  std::vector<float> x;
  for (float v = -120.0F; v <= 120.0F; v += 0.037F) x.push_back(v);
  for (float v = 1e-30F; v < 1.0F; v *= 7.0F) {
    x.push_back(v);
    x.push_back(-v);
  }
  x.push_back(0.0F);
  return x;
}

TEST(RowKernels, GatedSilu) {
  const std::vector<float> gate = WideRange();
  const auto count = static_cast<int64_t>(gate.size());
  const std::vector<float> up = RandomFloats(count, 3);
  std::vector<float> expected(gate.size());
  reference::GatedSilu(gate.data(), up.data(), count, expected.data());
  ExpectSame(expected, 1e-6, [&](const CpuKernels& kernels) {
    std::vector<float> out = gate;
    kernels.gated_silu(out.data(), up.data(), count, out.data());
    return out;
  });
}

TEST(RowKernels, GatedGeluTanh) {
  const std::vector<float> gate = WideRange();
  const auto count = static_cast<int64_t>(gate.size());
  const std::vector<float> up = RandomFloats(count, 4);
  std::vector<float> expected(gate.size());
  reference::GatedGeluTanh(gate.data(), up.data(), count, expected.data());
  // Far out the exponent is large, and its rounding counts: 1e-5 of something below 1e-6.
  ExpectSame(expected, 1e-5, [&](const CpuKernels& kernels) {
    std::vector<float> out = gate;
    kernels.gated_gelu_tanh(out.data(), up.data(), count, out.data());
    return out;
  });
}

TEST(RowKernels, SoftCap) {
  const std::vector<float> x = WideRange();
  std::vector<float> expected = x;
  reference::SoftCap(expected.data(), 30.0F, static_cast<int64_t>(x.size()));
  for (const NamedKernels& named : TestedKernels()) {
    std::vector<float> out = x;
    named.kernels->softcap(out.data(), 30.0F, static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(out[i], expected[i], 4e-6) << named.name;
  }
}

TEST(RowKernels, NoNumberStaysNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const NamedKernels& named : TestedKernels()) {
    std::vector<float> x(20, 1.0F);
    x[18] = nan;
    const std::vector<float> ones(20, 1.0F);
    std::vector<float> out(20);
    named.kernels->gated_silu(x.data(), ones.data(), 20, out.data());
    EXPECT_TRUE(std::isnan(out[18])) << named.name;
    EXPECT_TRUE(std::isfinite(out[17]));
    named.kernels->gated_gelu_tanh(x.data(), ones.data(), 20, out.data());
    EXPECT_TRUE(std::isnan(out[18])) << named.name;
    named.kernels->rms_norm(x.data(), ones.data(), 0.0F, 1e-5F, 20, out.data());
    EXPECT_TRUE(std::isnan(out[0])) << named.name;
    named.kernels->softcap(x.data(), 5.0F, 20);
    EXPECT_TRUE(std::isnan(x[18])) << named.name;
  }
}

TEST(RowKernels, AnElementDependsOnNothingBesideIt) {
  const std::vector<float> gate = RandomFloats(200, 5, 4.0F);
  const std::vector<float> up = RandomFloats(200, 6);
  for (const NamedKernels& named : TestedKernels()) {
    std::vector<float> all(200);
    named.kernels->gated_silu(gate.data(), up.data(), 200, all.data());
    for (const int64_t begin : {0, 1, 13, 100}) {
      for (const int64_t count : {1, 5, 16, 40}) {
        std::vector<float> some(static_cast<size_t>(count));
        named.kernels->gated_silu(gate.data() + begin, up.data() + begin, count, some.data());
        const std::vector<float> expected(all.begin() + begin, all.begin() + begin + count);
        ASSERT_EQ(BitsOf(some), BitsOf(expected)) << named.name;
      }
    }
  }
}

TEST(RowKernels, AddAndScale) {
  const std::vector<float> x = RandomFloats(77, 7);
  const std::vector<float> y = RandomFloats(77, 8);
  for (const NamedKernels& named : TestedKernels()) {
    std::vector<float> sum = x;
    named.kernels->add(sum.data(), y.data(), 77);
    std::vector<float> scaled = x;
    named.kernels->scale(scaled.data(), 1.7F, 77);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(sum[i], x[i] + y[i]) << named.name;
      ASSERT_EQ(scaled[i], x[i] * 1.7F) << named.name;
    }
  }
}

TEST(RowKernels, Rope) {
  struct Shape {
    int32_t heads, head_size, dims;
  };
  for (const Shape& shape : {Shape{3, 64, 64}, Shape{2, 80, 80}, Shape{1, 12, 12}, Shape{4, 16, 12},
                             Shape{2, 24, 8}, Shape{1, 4, 2}}) {
    for (const bool adjacent : {false, true}) {
      const int32_t pairs = shape.dims / 2;
      const std::vector<float> freqs = RandomFloats(pairs, 9, 0.1F);
      const int32_t position = 1234;
      const std::vector<float> x = RandomFloats(shape.heads * shape.head_size, 10);
      std::vector<float> expected = x;
      reference::Rope(expected.data(), &position, freqs.data(), 1,
                      {shape.heads, shape.head_size, shape.dims, adjacent, 1.25F});
      std::vector<float> cosines;
      std::vector<float> sines;
      for (const float freq : freqs) {
        cosines.push_back(
            static_cast<float>(std::cos(static_cast<double>(freq) * position) * 1.25));
        sines.push_back(static_cast<float>(std::sin(static_cast<double>(freq) * position) * 1.25));
      }
      std::vector<uint32_t> first;
      for (const NamedKernels& named : TestedKernels()) {
        std::vector<float> out = x;
        const auto turn = adjacent ? named.kernels->rope_adjacent : named.kernels->rope_halves;
        turn(out.data(), shape.heads, shape.head_size, pairs, cosines.data(), sines.data());
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(out[i], expected[i], 1e-6) << named.name;
        if (first.empty()) first = BitsOf(out);
        EXPECT_EQ(BitsOf(out), first) << named.name;
      }
    }
  }
}

TEST(RowKernels, FloatsToHalves) {
  std::vector<float> x = RandomFloats(1000, 11, 1e-3F);
  for (uint32_t bits = 0x33000000U; bits < 0x48000000U; bits += 0x3FFFFU) {  // 2^-25 to 2^17
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    x.push_back(value);
    x.push_back(-value);
  }
  std::vector<uint16_t> expected;
  for (const float value : x) expected.push_back(FloatToHalf(value));
  for (const NamedKernels& named : TestedKernels()) {
    for (const size_t count : {size_t{1}, size_t{20}, x.size()}) {
      std::vector<uint16_t> halves(count);
      named.kernels->floats_to_halves(x.data(), static_cast<int64_t>(count), halves.data());
      ASSERT_TRUE(std::equal(halves.begin(), halves.end(), expected.begin())) << named.name;
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

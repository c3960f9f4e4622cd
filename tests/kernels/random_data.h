// Random inputs of kernels, the same on every run.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace polysil::kernels {

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed, float size = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Where float16 scales stand in a block; every other byte may be anything.
inline std::vector<int32_t> HalfOffsets(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16:
    case WeightType::kMXFP4:
      return {};
    case WeightType::kQ4_1:
    case WeightType::kQ5_1:
    case WeightType::kQ4_K:
    case WeightType::kQ5_K:
      return {0, 2};
    case WeightType::kQ2_K:
      return {80, 82};
    case WeightType::kQ3_K:
      return {108};
    case WeightType::kQ6_K:
      return {208};
    case WeightType::kQ8_0:
    case WeightType::kQ4_0:
    case WeightType::kQ5_0:
    case WeightType::kIQ4_NL:
    case WeightType::kIQ4_XS:
    case WeightType::kIQ3_S:
    case WeightType::kIQ2_XS:
      return {0};
  }
  return {};
}

// Blocks of `values` elements: random bits, scales of either sign around 0.01. fill: the value of
// all other bytes, or -1 for random ones.
inline std::vector<std::byte> RandomBlocks(WeightType type, int64_t values, uint32_t seed,
                                           int fill = -1) {
  std::mt19937 random(seed);
  const WeightBlock size = BlockOf(type);
  std::vector<std::byte> bytes(static_cast<size_t>(values / size.values * size.bytes));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(fill < 0 ? random() & 0xFF : fill);
  const std::vector<float> scales = RandomFloats(values * 2, seed + 1, 0.01F);
  const int32_t scale_bytes = size.bytes;
  for (int64_t b = 0; b < values / size.values; ++b) {
    std::byte* block = bytes.data() + b * scale_bytes;
    size_t scale = static_cast<size_t>(b) * 2;
    const auto put_half = [&](int32_t offset) {
      const uint16_t half = FloatToHalf(scales[scale++]);
      std::memcpy(block + offset, &half, sizeof(half));
    };
    for (const int32_t offset : HalfOffsets(type)) put_half(offset);
    if (type == WeightType::kF16) put_half(0);
    if (type == WeightType::kBF16) {
      uint32_t bits;
      std::memcpy(&bits, &scales[scale], sizeof(bits));
      const auto high = static_cast<uint16_t>(bits >> 16);
      std::memcpy(block, &high, sizeof(high));
    }
    if (type == WeightType::kF32) std::memcpy(block, &scales[scale], sizeof(float));
    if (type == WeightType::kMXFP4) block[0] = static_cast<std::byte>(118 + random() % 4);
  }
  return bytes;
}

inline std::vector<float> Dequantised(WeightType type, const std::vector<std::byte>& blocks,
                                      int64_t values) {
  std::vector<float> out(static_cast<size_t>(values));
  Dequantise(type, blocks.data(), values, out.data());
  return out;
}

inline std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

}  // namespace polysil::kernels

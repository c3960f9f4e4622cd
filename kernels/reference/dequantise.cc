// Dequantisation of every weight type, block by block, in the order of operations of the ggml
// format.
#include <bit>
#include <cstring>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/reference/iq_grids.h"

namespace polysil::kernels {
namespace {

using Byte = uint8_t;

constexpr WeightBlock kBlocks[kWeightTypes] = {
    {1, 4},    {1, 2},     {1, 2},                              // F32 F16 BF16
    {32, 34},  {32, 18},   {32, 20},   {32, 22},   {32, 24},    // Q8_0 Q4_0 Q4_1 Q5_0 Q5_1
    {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210},  // Q2_K .. Q6_K
    {32, 18},  {256, 136}, {256, 110}, {256, 74},  {32, 17},    // IQ4_NL .. MXFP4
};

uint16_t Load16(const Byte* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

uint32_t Load32(const Byte* p) {
  return static_cast<uint32_t>(Load16(p)) | static_cast<uint32_t>(Load16(p + 2)) << 16;
}

float LoadHalf(const Byte* p) {
  return HalfToFloat(Load16(p));
}

void DequantiseQ8_0(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

void DequantiseQ4_0(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = block[2 + i];
    out[i] = static_cast<float>((pair & 15) - 8) * scale;
    out[i + 16] = static_cast<float>((pair >> 4) - 8) * scale;
  }
}

void DequantiseQ4_1(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const float minimum = LoadHalf(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int pair = block[4 + i];
    out[i] = static_cast<float>(pair & 15) * scale + minimum;
    out[i + 16] = static_cast<float>(pair >> 4) * scale + minimum;
  }
}

// The 5-bit value i of a Q5_0 or Q5_1 block.
int FiveBits(uint32_t high_bits, const Byte* pairs, int i) {
  const int low = i < 16 ? pairs[i] & 15 : pairs[i - 16] >> 4;
  return low | static_cast<int>((high_bits >> i & 1U) << 4);
}

void DequantiseQ5_0(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const uint32_t high_bits = Load32(block + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(FiveBits(high_bits, block + 6, i) - 16) * scale;
  }
}

void DequantiseQ5_1(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const float minimum = LoadHalf(block + 2);
  const uint32_t high_bits = Load32(block + 4);
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<float>(FiveBits(high_bits, block + 8, i)) * scale + minimum;
  }
}

// Value i of 256 stored as 2-bit fields: 128 values in 32 bytes, each byte holds i, i+32, i+64,
// i+96.
int TwoBits(const Byte* fields, int i) {
  return fields[(i / 128) * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void DequantiseQ2_K(const Byte* block, float* out) {
  const Byte* scales = block;
  const Byte* fields = block + 16;
  const float scale = LoadHalf(block + 80);
  const float minimum = LoadHalf(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int packed = scales[i / 16];
    const float group_scale = scale * static_cast<float>(packed & 15);
    const float group_minimum = minimum * static_cast<float>(packed >> 4);
    out[i] = group_scale * static_cast<float>(TwoBits(fields, i)) - group_minimum;
  }
}

// Scale i of 16 in Q3_K: 4 low bits in bytes 0..7, 2 high bits in bytes 8..11, biased by 32.
int ScaleQ3_K(const Byte* scales, int i) {
  const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
  const int high = scales[8 + i % 4] >> (i / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void DequantiseQ3_K(const Byte* block, float* out) {
  const Byte* high_bits = block;
  const Byte* fields = block + 32;
  const Byte* scales = block + 96;
  const float scale = LoadHalf(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int high = high_bits[i % 32] >> (i / 32) & 1;
    const float group_scale = scale * static_cast<float>(ScaleQ3_K(scales, i / 16));
    out[i] = group_scale * static_cast<float>(TwoBits(fields, i) - (high != 0 ? 0 : 4));
  }
}

// Scale and minimum i of 8 in Q4_K and Q5_K: 6 bits each in 12 bytes.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum ScaleQ4_K(const Byte* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, packed[i + 4] >> 4 | (packed[i] >> 6)
                                                                                     << 4};
}

// Value i of 256 stored as nibbles: 64 values in 32 bytes, low nibbles first.
int NibbleQ4_K(const Byte* pairs, int i) {
  const int pair = pairs[i / 64 * 32 + i % 32];
  return i % 64 < 32 ? pair & 15 : pair >> 4;
}

void DequantiseQ4_K(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const float minimum = LoadHalf(block + 2);
  for (int i = 0; i < 256; ++i) {
    const ScaleAndMinimum group = ScaleQ4_K(block + 4, i / 32);
    const float group_scale = scale * static_cast<float>(group.scale);
    const float group_minimum = minimum * static_cast<float>(group.minimum);
    out[i] = group_scale * static_cast<float>(NibbleQ4_K(block + 16, i)) - group_minimum;
  }
}

void DequantiseQ5_K(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const float minimum = LoadHalf(block + 2);
  const Byte* high_bits = block + 16;
  for (int i = 0; i < 256; ++i) {
    const ScaleAndMinimum group = ScaleQ4_K(block + 4, i / 32);
    const float group_scale = scale * static_cast<float>(group.scale);
    const float group_minimum = minimum * static_cast<float>(group.minimum);
    const int high = high_bits[i % 32] >> (i / 32) & 1;
    const int value = NibbleQ4_K(block + 48, i) + high * 16;
    out[i] = group_scale * static_cast<float>(value) - group_minimum;
  }
}

void DequantiseQ6_K(const Byte* block, float* out) {
  const Byte* low_bits = block;
  const Byte* high_bits = block + 128;
  const Byte* scales = block + 192;
  const float scale = LoadHalf(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int pair = low_bits[i / 128 * 64 + i % 64];
    const int low = i % 128 < 64 ? pair & 15 : pair >> 4;
    const int value = (low | TwoBits(high_bits, i) << 4) - 32;
    const float group_scale = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = group_scale * static_cast<float>(value);
  }
}

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

void DequantiseIQ4_NL(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = block[2 + i];
    out[i] = scale * static_cast<float>(kIq4Values[pair & 15]);
    out[i + 16] = scale * static_cast<float>(kIq4Values[pair >> 4]);
  }
}

void DequantiseIQ4_XS(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const int scales_high = Load16(block + 2);
  const Byte* scales_low = block + 4;
  for (int group = 0; group < 8; ++group) {
    const int low = scales_low[group / 2] >> (group % 2 * 4) & 15;
    const int high = scales_high >> (group * 2) & 3;
    const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
    const Byte* pairs = block + 8 + group * 16;
    for (int i = 0; i < 16; ++i) {
      out[group * 32 + i] = group_scale * static_cast<float>(kIq4Values[pairs[i] & 15]);
      out[group * 32 + i + 16] = group_scale * static_cast<float>(kIq4Values[pairs[i] >> 4]);
    }
  }
}

void DequantiseIQ3_S(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  const Byte* indices = block + 2;     // low 8 bits of 64 grid indices
  const Byte* high_bits = block + 66;  // their ninth bits
  const Byte* signs = block + 74;
  const Byte* scales = block + 106;
  for (int i = 0; i < 256; ++i) {
    const int entry = i / 4;
    const int index = indices[entry] | (high_bits[entry / 8] >> (entry % 8) & 1) << 8;
    const int magnitude = (kIq3SGrid[index] >> (i % 4 * 3) & 7) * 2 + 1;
    const int group = scales[i / 64] >> (i / 32 % 2 * 4) & 15;
    const float group_scale = scale * static_cast<float>(1 + 2 * group);
    const bool negative = (signs[i / 8] >> (i % 8) & 1) != 0;
    out[i] = group_scale * static_cast<float>(magnitude) * (negative ? -1.0F : 1.0F);
  }
}

void DequantiseIQ2_XS(const Byte* block, float* out) {
  constexpr int kValues[4] = {8, 25, 43, 0};
  const float scale = LoadHalf(block);
  const Byte* scales = block + 66;
  for (int i = 0; i < 256; ++i) {
    const uint32_t entry = Load16(block + 2 + i / 8 * 2);
    const int magnitude = kValues[kIq2XsGrid[entry & 511] >> (i % 8 * 2) & 3];
    const uint32_t seven = entry >> 9;  // signs of 7 values; the eighth makes the count even
    const uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1U) << 7;
    const int group = scales[i / 32] >> (i / 16 % 2 * 4) & 15;
    const float group_scale = scale * (0.5F + static_cast<float>(group)) * 0.25F;
    const bool negative = (signs >> (i % 8) & 1U) != 0;
    out[i] = group_scale * static_cast<float>(magnitude) * (negative ? -1.0F : 1.0F);
  }
}

void DequantiseMXFP4(const Byte* block, float* out) {
  constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  // Half of 2^(e - 127), since the values above are doubled; 0 and 1 make subnormals.
  const uint32_t exponent = block[0];
  const float scale =
      std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23);
  for (int i = 0; i < 16; ++i) {
    const int pair = block[1 + i];
    out[i] = scale * static_cast<float>(kDoubled[pair & 15]);
    out[i + 16] = scale * static_cast<float>(kDoubled[pair >> 4]);
  }
}

void DequantiseF32(const Byte* block, float* out) {
  std::memcpy(out, block, sizeof(float));
}
void DequantiseF16(const Byte* block, float* out) {
  *out = LoadHalf(block);
}
void DequantiseBF16(const Byte* block, float* out) {
  *out = Bfloat16ToFloat(Load16(block));
}

using DequantiseBlock = void (*)(const Byte*, float*);
constexpr DequantiseBlock kDequantise[kWeightTypes] = {
    DequantiseF32,   DequantiseF16,    DequantiseBF16,  DequantiseQ8_0,   DequantiseQ4_0,
    DequantiseQ4_1,  DequantiseQ5_0,   DequantiseQ5_1,  DequantiseQ2_K,   DequantiseQ3_K,
    DequantiseQ4_K,  DequantiseQ5_K,   DequantiseQ6_K,  DequantiseIQ4_NL, DequantiseIQ4_XS,
    DequantiseIQ3_S, DequantiseIQ2_XS, DequantiseMXFP4,
};

}  // namespace

WeightBlock BlockOf(WeightType type) {
  return kBlocks[static_cast<int>(type)];
}

void Dequantise(WeightType type, const std::byte* blocks, int64_t count, float* out) {
  const WeightBlock size = BlockOf(type);
  const DequantiseBlock dequantise = kDequantise[static_cast<int>(type)];
  const auto* block = reinterpret_cast<const Byte*>(blocks);
  for (int64_t i = 0; i < count; i += size.values, block += size.bytes) dequantise(block, out + i);
}

}  // namespace polysil::kernels

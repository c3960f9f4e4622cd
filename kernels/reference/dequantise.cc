// Dequantisation of every weight type, block by block, in the order of operations of the ggml
// format.
#include <cstring>

#include "kernels/reference/block_fields.h"
#include "kernels/weight_type.h"

namespace polysil::kernels {
namespace {

using Byte = uint8_t;

constexpr WeightBlock kBlocks[kWeightTypes] = {
    {1, 4},    {1, 2},     {1, 2},                              // F32 F16 BF16
    {32, 34},  {32, 18},   {32, 20},   {32, 22},   {32, 24},    // Q8_0 Q4_0 Q4_1 Q5_0 Q5_1
    {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210},  // Q2_K .. Q6_K
    {32, 18},  {256, 136}, {256, 110}, {256, 74},  {32, 17},    // IQ4_NL .. MXFP4
};

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

void DequantiseQ2_K(const Byte* bytes, float* out) {
  const Q2KBlock block = {bytes};
  for (int i = 0; i < 256; ++i) {
    out[i] = block.group_scale(i / 16) * static_cast<float>(block.value(i)) -
             block.group_minimum(i / 16);
  }
}

void DequantiseQ3_K(const Byte* bytes, float* out) {
  const Q3KBlock block = {bytes};
  for (int i = 0; i < 256; ++i) {
    out[i] = block.group_scale(i / 16) * static_cast<float>(block.value(i) - 4);
  }
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
    const ScaleAndMinimum group = ScaleQ4K(block + 4, i / 32);
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
    const ScaleAndMinimum group = ScaleQ4K(block + 4, i / 32);
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

void DequantiseIQ4_NL(const Byte* block, float* out) {
  const float scale = LoadHalf(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = block[2 + i];
    out[i] = scale * static_cast<float>(kIq4Values[pair & 15]);
    out[i + 16] = scale * static_cast<float>(kIq4Values[pair >> 4]);
  }
}

void DequantiseIQ4_XS(const Byte* block, float* out) {
  for (int group = 0; group < 8; ++group) {
    const float scale = ScaleIq4Xs(block, group);
    const Byte* pairs = block + 8 + group * 16;
    for (int i = 0; i < 16; ++i) {
      out[group * 32 + i] = scale * static_cast<float>(kIq4Values[pairs[i] & 15]);
      out[group * 32 + i + 16] = scale * static_cast<float>(kIq4Values[pairs[i] >> 4]);
    }
  }
}

void DequantiseIQ3_S(const Byte* bytes, float* out) {
  const Iq3SBlock block = {bytes};
  for (int i = 0; i < 256; ++i) {
    out[i] = block.group_scale(i / 32) * static_cast<float>(block.value(i));
  }
}

void DequantiseIQ2_XS(const Byte* bytes, float* out) {
  const Iq2XsBlock block = {bytes};
  for (int i = 0; i < 256; ++i) {
    out[i] = block.group_scale(i / 16) * static_cast<float>(block.value(i));
  }
}

void DequantiseMXFP4(const Byte* block, float* out) {
  const float scale = ScaleMxfp4(block);
  for (int i = 0; i < 16; ++i) {
    const int pair = block[1 + i];
    out[i] = scale * static_cast<float>(kMxfp4Doubled[pair & 15]);
    out[i + 16] = scale * static_cast<float>(kMxfp4Doubled[pair >> 4]);
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

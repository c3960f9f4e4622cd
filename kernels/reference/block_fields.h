// Where the fields of a quantised block lie and how their bits are packed, as the ggml format
// defines it. Used by dequantisation and by the packing of weight panels.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/half.h"
#include "kernels/reference/iq_grids.h"

namespace polysil::kernels {

inline uint16_t Load16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
inline uint32_t Load32(const uint8_t* p) {
  return static_cast<uint32_t>(Load16(p)) | static_cast<uint32_t>(Load16(p + 2)) << 16;
}
inline float LoadHalf(const uint8_t* p) {
  return HalfToFloat(Load16(p));
}

// Value i of 256 stored as 2-bit fields: 128 values in 32 bytes, each byte holds i, i+32, i+64,
// i+96.
inline int TwoBits(const uint8_t* fields, int i) {
  return fields[(i / 128) * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// --- Q2_K: scales [16], fields [64], scale, minimum ---
struct Q2KBlock {
  const uint8_t* bytes;
  int value(int i) const { return TwoBits(bytes + 16, i); }  // 0..3
  float group_scale(int group) const {
    return LoadHalf(bytes + 80) * static_cast<float>(bytes[group] & 15);
  }
  float group_minimum(int group) const {  // subtracted
    return LoadHalf(bytes + 82) * static_cast<float>(bytes[group] >> 4);
  }
};

// --- Q3_K: high bits [32], fields [64], scales [12], scale ---
struct Q3KBlock {
  const uint8_t* bytes;
  int value(int i) const {  // 0..7, stands for value - 4
    return TwoBits(bytes + 32, i) | (bytes[i % 32] >> (i / 32) & 1) << 2;
  }
  // 4 low bits of a group's scale in bytes 0..7, 2 high bits in bytes 8..11, biased by 32.
  float group_scale(int group) const {
    const uint8_t* scales = bytes + 96;
    const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    return LoadHalf(bytes + 108) * static_cast<float>((low | high << 4) - 32);
  }
};

// Scale and minimum of a group of 32 in Q4_K and Q5_K: 6 bits each in 12 bytes.
struct ScaleAndMinimum {
  uint8_t scale;
  uint8_t minimum;
};
inline ScaleAndMinimum ScaleQ4K(const uint8_t* packed, int group) {
  const auto byte = [](int value) { return static_cast<uint8_t>(value); };
  if (group < 4) return {byte(packed[group] & 63), byte(packed[group + 4] & 63)};
  return {byte((packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4),
          byte(packed[group + 4] >> 4 | (packed[group] >> 6) << 4)};
}

// --- IQ4_NL and IQ4_XS ---
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// IQ4_XS: scale, high bits of group scales, their low bits [4], pairs [128].
inline float ScaleIq4Xs(const uint8_t* block, int group) {
  const int low = block[4 + group / 2] >> (group % 2 * 4) & 15;
  const int high = Load16(block + 2) >> (group * 2) & 3;
  return LoadHalf(block) * static_cast<float>((low | high << 4) - 32);
}

// --- IQ3_S: scale, low 8 bits of 64 grid indices, their ninth bits [8], signs [32], scales [4] ---
struct Iq3SBlock {
  const uint8_t* bytes;
  int value(int i) const {  // odd, -15..15
    const int entry = i / 4;
    const int index = bytes[2 + entry] | (bytes[66 + entry / 8] >> (entry % 8) & 1) << 8;
    const int magnitude = (kIq3SGrid[index] >> (i % 4 * 3) & 7) * 2 + 1;
    return (bytes[74 + i / 8] >> (i % 8) & 1) != 0 ? -magnitude : magnitude;
  }
  float group_scale(int group) const {  // of 32
    const int packed = bytes[106 + group / 2] >> (group % 2 * 4) & 15;
    return LoadHalf(bytes) * static_cast<float>(1 + 2 * packed);
  }
};

// --- IQ2_XS: scale, grid index and signs [32] of 16 bits, scales [8] ---
struct Iq2XsBlock {
  const uint8_t* bytes;
  int value(int i) const {  // 8, 25 or 43 with a sign
    constexpr int kMagnitudes[4] = {8, 25, 43, 0};
    const uint32_t entry = Load16(bytes + 2 + i / 8 * 2);
    const int magnitude = kMagnitudes[kIq2XsGrid[entry & 511] >> (i % 8 * 2) & 3];
    const uint32_t seven = entry >> 9;  // signs of 7 values; the eighth makes the count even
    const uint32_t signs = seven | (static_cast<uint32_t>(std::popcount(seven)) & 1U) << 7;
    return (signs >> (i % 8) & 1U) != 0 ? -magnitude : magnitude;
  }
  float group_scale(int group) const {  // of 16
    const int packed = bytes[66 + group / 2] >> (group % 2 * 4) & 15;
    return LoadHalf(bytes) * (0.5F + static_cast<float>(packed)) * 0.25F;
  }
};

// --- MXFP4: exponent, pairs [16] ---
inline constexpr int8_t kMxfp4Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
// Half of 2^(exponent - 127), since the values above are doubled; 0 and 1 make subnormals.
inline float ScaleMxfp4(const uint8_t* block) {
  const uint32_t exponent = block[0];
  return std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23);
}

}  // namespace polysil::kernels

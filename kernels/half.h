// float16 and bfloat16 as bits, in plain integer arithmetic: the same on every machine. Static on
// purpose: files compiled for other instruction sets must not share one copy.
#pragma once

#include <bit>
#include <cstdint>

namespace polysil::kernels {

static inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t magnitude = half & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity; a NaN becomes quiet as the hardware makes it
    const uint32_t quiet = magnitude > 0x7C00U ? 0x00400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13) | quiet);
  }
  if (magnitude < 0x0400U) {  // zero or subnormal: magnitude * 2^-24 is exact in float
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
}

// Rounds to nearest, ties to even; what is too large becomes infinity.
static inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and more
  if (magnitude < 0x38800000U) {  // below 2^-14: adding 0.5 leaves the half's bits at the bottom
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - (112U << 23) + 0xFFFU + odd) >> 13));
}

static inline float Bfloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace polysil::kernels

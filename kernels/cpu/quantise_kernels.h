// Rounding rows of x to 8 or 16 bits per block, as templates for every instruction set; internal
// linkage, as in lanes.h.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_kernels.h"

namespace polysil::kernels {
namespace {

constexpr float kInt8Largest = 127.0F;
constexpr float kInt16Largest = 32512.0F;  // 256 * 127: the high byte stays within 127
constexpr float kNoNumber = __builtin_nanf("");

// Sixteen 32-bit integers.
struct SixteenInts {
  IntRegister part[Sixteen::kParts];
};

typedef int32_t FourInts __attribute__((vector_size(16), aligned(4), may_alias));

// Elements [from, from + 4) of a register.
[[gnu::always_inline]] inline FourInts FourOf(const IntRegister& ints, int from) {
  return *reinterpret_cast<const FourInts*>(reinterpret_cast<const char*>(&ints) + from * 4);
}

// The largest magnitude of 32 values; infinity or no number if one of them is that. Magnitudes of
// floats are in the order of their bits.
[[gnu::always_inline]] inline float LargestMagnitude(const float* x) {
  IntRegister largest = {};
  for (int i = 0; i < 2; ++i) {
    const Sixteen lanes = Sixteen::Load(x + i * 16);
    for (int p = 0; p < Sixteen::kParts; ++p) {
      const IntRegister bits = reinterpret_cast<IntRegister>(lanes.part[p]) & 0x7FFFFFFF;
      largest = bits > largest ? bits : largest;
    }
  }
  FourInts top = FourOf(largest, 0);
  for (int i = 4; i < kRegisterFloats; i += 4) {
    const FourInts four = FourOf(largest, i);
    top = four > top ? four : top;
  }
  const int32_t even = top[0] > top[2] ? top[0] : top[2];
  const int32_t odd = top[1] > top[3] ? top[1] : top[3];
  return __builtin_bit_cast(float, even > odd ? even : odd);
}

// x * factor rounded to whole numbers, ties to even, for results within 2^22.
[[gnu::always_inline]] inline SixteenInts RoundSixteen(const float* x, float factor) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23
  constexpr int32_t kRoundBits = 0x4B400000;
  const Sixteen lanes = Sixteen::Load(x);
  SixteenInts whole;
  for (int p = 0; p < Sixteen::kParts; ++p) {
    const FloatRegister shifted = lanes.part[p] * factor + kRound;
    whole.part[p] = reinterpret_cast<IntRegister>(shifted) - kRoundBits;
  }
  return whole;
}

[[gnu::always_inline]] inline int32_t SumInts(const SixteenInts& ints) {
  IntRegister sums = ints.part[0];
  for (int p = 1; p < Sixteen::kParts; ++p) sums += ints.part[p];
  FourInts total = FourOf(sums, 0);
  for (int i = 4; i < kRegisterFloats; i += 4) total += FourOf(sums, i);
  return (total[0] + total[2]) + (total[1] + total[3]);
}

// Sixteen integers that fit, to 8 or 16 bits.
[[gnu::always_inline]] inline void StoreInts(const SixteenInts& ints, int8_t* to) {
#if defined(__SSE2__)
  const auto* fours = reinterpret_cast<const __m128i*>(&ints);
  const __m128i low = _mm_packs_epi32(fours[0], fours[1]);
  const __m128i high = _mm_packs_epi32(fours[2], fours[3]);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(low, high));
#else
  int32_t values[16];
  std::memcpy(values, &ints, sizeof(values));
  for (int i = 0; i < 16; ++i) to[i] = static_cast<int8_t>(values[i]);
#endif
}

[[gnu::always_inline]] inline void StoreInts(const SixteenInts& ints, int16_t* to) {
#if defined(__SSE2__)
  const auto* fours = reinterpret_cast<const __m128i*>(&ints);
  auto* halves = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(halves, _mm_packs_epi32(fours[0], fours[1]));
  _mm_storeu_si128(halves + 1, _mm_packs_epi32(fours[2], fours[3]));
#else
  int32_t values[16];
  std::memcpy(values, &ints, sizeof(values));
  for (int i = 0; i < 16; ++i) to[i] = static_cast<int16_t>(values[i]);
#endif
}

// The facts of a block whose q are whole[0..1], each standing for `unit` steps of the scale.
[[gnu::always_inline]] inline ActivationFacts FactsOf(const SixteenInts* whole, float scale,
                                                      int32_t unit) {
  const int32_t first = SumInts(whole[0]) * unit;
  const int32_t sum = SumInts(whole[1]) * unit + first;
  return {scale, scale * static_cast<float>(sum), sum, first};
}

// True for a block that has no q: all but zero, or not finite. Then *facts says what it stands for.
[[gnu::always_inline]] inline bool IsDegenerate(float largest, ActivationFacts* facts) {
  if (largest >= 1e-30F && largest <= 3.4e38F) return false;
  const float scale = largest < 1e-30F ? 0.0F : kNoNumber;
  *facts = {scale, scale, 0, 0};
  return true;
}

void QuantiseWide(const float* x, float largest, Int8Block* block, int8_t* lows) {
  SixteenInts whole[2];
  for (int i = 0; i < 2; ++i) {
    whole[i] = RoundSixteen(x + i * 16, kInt16Largest / largest);
    SixteenInts high;
    SixteenInts low;
    for (int p = 0; p < Sixteen::kParts; ++p) {
      high.part[p] = (whole[i].part[p] + 128) >> 8;
      low.part[p] = whole[i].part[p] - (high.part[p] << 8);
    }
    StoreInts(high, block->highs + i * 16);
    StoreInts(low, lows + i * 16);
  }
  block->facts = FactsOf(whole, largest / kInt16Largest, 1);
  block->wide = 1;
}

void QuantiseInt8(const float* x, int64_t cols, Int8Block* blocks, int8_t* lows) {
  const float mean_square = SumOfSquares(x, cols) / static_cast<float>(cols);
  const float wide_above = kWideBlockFactor * __builtin_sqrtf(mean_square);
  for (int64_t b = 0; b < cols / kActivationBlock; ++b) {
    Int8Block& block = blocks[b];
    const float largest = LargestMagnitude(x + b * kActivationBlock);
    const bool degenerate = IsDegenerate(largest, &block.facts);
    if (!degenerate && largest > wide_above) {
      QuantiseWide(x + b * kActivationBlock, largest, &block, lows + b * kActivationBlock);
      continue;
    }
    block.wide = 0;
    std::memset(lows + b * kActivationBlock, 0, kActivationBlock);
    if (degenerate) {
      std::memset(block.highs, 0, sizeof(block.highs));
      continue;
    }
    SixteenInts whole[2];
    for (int i = 0; i < 2; ++i) {
      whole[i] = RoundSixteen(x + b * kActivationBlock + i * 16, kInt8Largest / largest);
      StoreInts(whole[i], block.highs + i * 16);
    }
    block.facts = FactsOf(whole, largest / kInt8Largest * 0x1p-8F, 256);
  }
}

void QuantiseInt16(const float* x, int64_t cols, Int16Block* blocks) {
  for (int64_t b = 0; b < cols / kActivationBlock; ++b, x += kActivationBlock) {
    Int16Block& block = blocks[b];
    const float largest = LargestMagnitude(x);
    if (IsDegenerate(largest, &block.facts)) {
      std::memset(block.wholes, 0, sizeof(block.wholes));
      continue;
    }
    SixteenInts whole[2];
    for (int i = 0; i < 2; ++i) {
      whole[i] = RoundSixteen(x + i * 16, kInt16Largest / largest);
      StoreInts(whole[i], block.wholes + i * 16);
    }
    block.facts = FactsOf(whole, largest / kInt16Largest, 1);
  }
}

}  // namespace
}  // namespace polysil::kernels

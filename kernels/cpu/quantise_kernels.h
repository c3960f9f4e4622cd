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
constexpr float kInt16Largest = 32512.0F;
constexpr float kLargestFinite = 3.4e38F;
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

// The facts of a block whose q are whole[0..1].
[[gnu::always_inline]] inline ActivationFacts FactsOf(const SixteenInts* whole, float scale) {
  const int32_t first = SumInts(whole[0]);
  const int32_t sum = SumInts(whole[1]) + first;
  return {scale, scale * static_cast<float>(sum), sum, first};
}

// True for a block that has no q: all but zero, or not finite. Then *facts says what it stands for.
[[gnu::always_inline]] inline bool IsDegenerate(float largest, ActivationFacts* facts) {
  if (largest >= 1e-30F && largest <= kLargestFinite) return false;
  const float scale = largest < 1e-30F ? 0.0F : kNoNumber;
  *facts = {scale, scale, 0, 0};
  return true;
}

// Takes the values of a block that are above `limit` out of it, at most kBlockOutliersMax: the
// largest, of equal ones the first. By rising column, the first of which is `column` in x's row;
// returns how many.
int32_t TakeOutliers(float* x, float limit, int64_t column, ActivationOutlier* outliers) {
  int32_t above[kActivationBlock + 1];
  int32_t count = 0;
  for (int32_t c = 0; c < kActivationBlock; ++c) {
    above[count] = c;
    count += __builtin_fabsf(x[c]) > limit ? 1 : 0;
  }
  for (; count > kBlockOutliersMax; --count) {
    int32_t least = 0;
    for (int32_t i = 1; i < count; ++i) {
      if (__builtin_fabsf(x[above[i]]) <= __builtin_fabsf(x[above[least]])) least = i;
    }
    for (int32_t i = least; i + 1 < count; ++i) above[i] = above[i + 1];
  }
  for (int32_t i = 0; i < count; ++i) {
    outliers[i] = {static_cast<uint32_t>(column + above[i]), x[above[i]]};
    x[above[i]] = 0.0F;
  }
  return count;
}

// A block without outliers, the largest magnitude of which is `largest`.
[[gnu::always_inline]] inline void QuantiseInt8Block(const float* x, float largest,
                                                     Int8Block* block) {
  if (IsDegenerate(largest, &block->facts)) {
    std::memset(block->values, 0, sizeof(block->values));
    return;
  }
  SixteenInts whole[2];
  for (int i = 0; i < 2; ++i) {
    whole[i] = RoundSixteen(x + i * 16, kInt8Largest / largest);
    StoreInts(whole[i], block->values + i * 16);
  }
  block->facts = FactsOf(whole, largest / kInt8Largest);
}

int32_t QuantiseInt8(const float* x, int64_t cols, Int8Block* blocks, ActivationOutlier* outliers) {
  const float mean_square = SumOfSquares(x, cols) / static_cast<float>(cols);
  const float limit = kOutlierFactor * __builtin_sqrtf(mean_square);
  int32_t count = 0;
  for (int64_t c = 0; c < cols; c += kActivationBlock, ++blocks) {
    const float largest = LargestMagnitude(x + c);
    if (largest > limit && largest <= kLargestFinite) [[unlikely]] {
      float rest[kActivationBlock];
      std::memcpy(rest, x + c, sizeof(rest));
      count += TakeOutliers(rest, limit, c, outliers + count);
      QuantiseInt8Block(rest, LargestMagnitude(rest), blocks);
    } else {
      QuantiseInt8Block(x + c, largest, blocks);
    }
  }
  return count;
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
    block.facts = FactsOf(whole, largest / kInt16Largest);
  }
}

}  // namespace
}  // namespace polysil::kernels

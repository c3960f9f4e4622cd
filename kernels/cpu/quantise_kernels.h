// Rounding rows of x to 8 or 16 bits per block, as templates for every instruction set; internal
// linkage, as in lanes.h.
#pragma once

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
  int32_t lanes[kRegisterFloats];
  std::memcpy(lanes, &largest, sizeof(lanes));
  int32_t top = lanes[0];
  for (int i = 1; i < kRegisterFloats; ++i) top = lanes[i] > top ? lanes[i] : top;
  float result;
  std::memcpy(&result, &top, sizeof(result));
  return result;
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
  int32_t lanes[kRegisterFloats];
  std::memcpy(lanes, &sums, sizeof(lanes));
  int32_t total = 0;
  for (const int32_t lane : lanes) total += lane;
  return total;
}

template <typename Narrow>
[[gnu::always_inline]] inline void StoreInts(const SixteenInts& ints, Narrow* to) {
  typedef Narrow Part __attribute__((vector_size(kRegisterFloats * sizeof(Narrow)),
                                     aligned(sizeof(Narrow)), may_alias));
  for (int p = 0; p < Sixteen::kParts; ++p) {
    *reinterpret_cast<Part*>(to + p * kRegisterFloats) =
        __builtin_convertvector(ints.part[p], Part);
  }
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

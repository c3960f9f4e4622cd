// Products of panels with rows of x, as templates over an instruction set; internal linkage, as in
// lanes.h. Every output is a sum over blocks of 32 columns in rising order, the integer part of
// each exact, and then over the row's outliers: the same bits alone or with other rows, on any
// thread and any instruction set.
//
// Isa: kLanes, in kParts registers of integers, and kFloatRows sums of so many lanes fit; Bytes (4
// bytes per lane), Ints (one int32 per lane); Int8Sum and Int16Sum add products of 4 columns per
// lane, the latter those of one register.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/reference/block_fields.h"

namespace polysil::kernels {
namespace {

// --- How values are unpacked: word j of 8 of a block, as unsigned bytes. Without branches: where j
// is known, shifts by nothing vanish; where it is not, a branch could not be foreseen ---

// Bit `from` of each byte becomes bit `to`; the others are to be masked.
template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Bytes ShiftTo(typename Isa::Bytes word, int from,
                                                          int to) {
  const int left = from < to ? to - from : 0;
  const int right = from > to ? from - to : 0;
  return Isa::ShiftRight(Isa::ShiftLeft(word, left), right);
}

template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Bytes Nibbles(const uint8_t* values, int j) {
  const auto pairs = Isa::Load(values + j % 4 * 4 * Isa::kLanes);
  return Isa::And(Isa::ShiftRight(pairs, j / 4 * 4), 0x0F);
}

template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Bytes FiveBits(const uint8_t* values, int j) {
  const auto word = Isa::Load(values + 16 * Isa::kLanes);
  const auto shifted = ShiftTo<Isa>(word, j, 4);
  return Isa::Or(Nibbles<Isa>(values, j), Isa::And(shifted, 0x10));
}

template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Bytes SixBits(const uint8_t* values, int j) {
  const auto word = Isa::Load(values + (16 + j / 4 * 4) * Isa::kLanes);
  const auto shifted = ShiftTo<Isa>(word, 2 * (j % 4), 4);
  return Isa::Or(Nibbles<Isa>(values, j), Isa::And(shifted, 0x30));
}

template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Bytes WholeBytes(const uint8_t* values, int j) {
  return Isa::Load(values + j * 4 * Isa::kLanes);
}

// Code books with an offset that makes them unsigned.
template <typename Isa>
[[gnu::always_inline]] inline typename Isa::Bytes LookUp(const int8_t* book, int offset,
                                                         const uint8_t* values, int j) {
  alignas(16) uint8_t table[16];
  for (int i = 0; i < 16; ++i) table[i] = static_cast<uint8_t>(book[i] + offset);
  return Isa::LookUp(table, Nibbles<Isa>(values, j));
}

// --- How facts are read ---

template <typename Isa>
using Floats = Lanes<Isa::kLanes>;

template <typename Isa, int kField>
[[gnu::always_inline]] inline Floats<Isa> HalfFact(const uint8_t* facts) {
  return LoadHalves<Isa::kLanes>(reinterpret_cast<const uint16_t*>(facts + kField * Isa::kLanes));
}
template <typename Isa>
[[gnu::always_inline]] inline Floats<Isa> FloatFact(const uint8_t* facts, int field) {
  return Floats<Isa>::Load(reinterpret_cast<const float*>(facts + field * Isa::kLanes));
}

// --- Formats: kValueMax bounds the unsigned values, 2^kOffsetBits (if not 0) is to be subtracted
// from them, kGroups scales share a block ---

template <ActivationType kActivationOf, int kValueMaxOf, int kOffsetBitsOf, int kGroupsOf,
          bool kHasMinimumOf>
struct FormatFacts {
  static constexpr ActivationType kActivation = kActivationOf;
  static constexpr int kValueMax = kValueMaxOf;
  static constexpr int kOffsetBits = kOffsetBitsOf;
  static constexpr int kGroups = kGroupsOf;
  static constexpr bool kHasMinimum = kHasMinimumOf;
};

// One scale (and minimum) as float16 per block.
template <typename Isa>
struct HalfScales {
  static Floats<Isa> Scale(const uint8_t* facts, int64_t, int) { return HalfFact<Isa, 0>(facts); }
  static Floats<Isa> Minimum(const uint8_t* facts, int64_t, int) { return HalfFact<Isa, 2>(facts); }
};
// Scales, then minimums, as float for each group.
template <typename Isa>
struct FloatScales {
  static Floats<Isa> Scale(const uint8_t* facts, int64_t, int group) {
    return FloatFact<Isa>(facts, 4 * group);
  }
  static Floats<Isa> Minimum(const uint8_t* facts, int64_t, int group) {
    return FloatFact<Isa>(facts, 8 + 4 * group);
  }
};
// Scales and minimums of Q4_K and Q5_K.
template <typename Isa>
struct KScales {
  static Floats<Isa> Scale(const uint8_t* facts, int64_t block, int) {
    return HalfFact<Isa, 0>(facts) * Isa::LoadUnsigned(facts + (4 + block % 8 * 2) * Isa::kLanes);
  }
  static Floats<Isa> Minimum(const uint8_t* facts, int64_t block, int) {
    return HalfFact<Isa, 2>(facts) * Isa::LoadUnsigned(facts + (5 + block % 8 * 2) * Isa::kLanes);
  }
};

constexpr auto kInt8 = ActivationType::kInt8;
constexpr auto kInt16 = ActivationType::kInt16;

template <typename Isa>
struct Q4_0Format : Q4_0Layout, FormatFacts<kInt8, 15, 3, 1, false>, HalfScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return Nibbles<Isa>(v, j); }
};
template <typename Isa>
struct Q4_1Format : Q4_1Layout, FormatFacts<kInt8, 15, 0, 1, true>, HalfScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return Nibbles<Isa>(v, j); }
};
template <typename Isa>
struct Q5_0Format : Q5_0Layout, FormatFacts<kInt8, 31, 4, 1, false>, HalfScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return FiveBits<Isa>(v, j); }
};
template <typename Isa>
struct Q5_1Format : Q5_1Layout, FormatFacts<kInt8, 31, 0, 1, true>, HalfScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return FiveBits<Isa>(v, j); }
};
template <typename Isa>
struct Q8_0Format : Q8_0Layout, FormatFacts<kInt16, 255, 7, 1, false>, HalfScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return WholeBytes<Isa>(v, j); }
};
template <typename Isa>
struct Q4_KFormat : Q4_KLayout, FormatFacts<kInt8, 15, 0, 1, true>, KScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return Nibbles<Isa>(v, j); }
};
template <typename Isa>
struct Q5_KFormat : Q5_KLayout, FormatFacts<kInt8, 31, 0, 1, true>, KScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return FiveBits<Isa>(v, j); }
};
template <typename Isa>
struct Q6_KFormat : Q6_KLayout, FormatFacts<kInt8, 63, 5, 2, false> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return SixBits<Isa>(v, j); }
  static Floats<Isa> Scale(const uint8_t* facts, int64_t block, int group) {
    return HalfFact<Isa, 0>(facts) *
           Isa::LoadSigned(facts + (2 + block % 8 * 2 + group) * Isa::kLanes);
  }
};
template <typename Isa>
struct Q3_KFormat : Q3_KLayout, FormatFacts<kInt8, 7, 2, 2, false>, FloatScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return Nibbles<Isa>(v, j); }
};
template <typename Isa>
struct Q2_KFormat : Q2_KLayout, FormatFacts<kInt8, 3, 0, 2, true>, FloatScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return Nibbles<Isa>(v, j); }
};
template <typename Isa>
struct Iq4Format : Iq4Layout, FormatFacts<kInt16, 255, 7, 1, false>, FloatScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) {
    return LookUp<Isa>(kIq4Values, 128, v, j);
  }
};
template <typename Isa>
struct Mxfp4Format : Mxfp4Layout, FormatFacts<kInt8, 28, 4, 1, false>, FloatScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) {
    return LookUp<Isa>(kMxfp4Doubled, 16, v, j);
  }
};
template <typename Isa>
struct Iq3SFormat : Iq3SLayout, FormatFacts<kInt16, 255, 7, 1, false>, FloatScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return WholeBytes<Isa>(v, j); }
};
template <typename Isa>
struct Iq2XsFormat : Iq2XsLayout, FormatFacts<kInt16, 255, 7, 2, false>, FloatScales<Isa> {
  static typename Isa::Bytes Values(const uint8_t* v, int j) { return WholeBytes<Isa>(v, j); }
};

// --- Products ---

// The blocks of x that a format wants.
template <ActivationType kActivation>
struct BlocksOf {
  using Block = Int8Block;
  static const Block* Rows(const Activations& x) { return x.int8_blocks; }
};
template <>
struct BlocksOf<ActivationType::kInt16> {
  using Block = Int16Block;
  static const Block* Rows(const Activations& x) { return x.int16_blocks; }
};

inline std::span<const ActivationOutlier> OutliersOf(const Activations& x, int64_t row) {
  return {x.outliers + row * RowOutliersMax(x.cols), static_cast<size_t>(x.outlier_counts[row])};
}

// Words [kWords * group, kWords * (group + 1)) of a block belong to a group.
template <typename Format>
struct Group {
  static constexpr int kWords = 8 / Format::kGroups;
  [[gnu::always_inline]] static int32_t Sum(const ActivationFacts& facts, int group) {
    if (Format::kGroups == 1) return facts.sum;
    return group == 0 ? facts.first_sum : facts.sum - facts.first_sum;
  }
};

// sums[r] = values of the group . 8-bit row r.
template <typename Isa, typename Format, int kRows>
[[gnu::always_inline]] inline void SumInt8(const uint8_t* values, int group, const int8_t* x,
                                           int64_t row_stride, typename Isa::Ints* sums) {
  using Sum = typename Isa::template Int8Sum<Format::kValueMax, Group<Format>::kWords>;
  Sum sum[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < Group<Format>::kWords; ++i) {
    const int j = group * Group<Format>::kWords + i;
    const auto word = Format::Values(values, j);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r].Add(i, word, x + r * row_stride + 4 * j);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = sum[r].Total();
}

// Exact sums of one group of a block: q . values for kRows rows whose blocks are `stride` apart.
template <typename Isa, typename Format, int kRows>
[[gnu::always_inline]] inline void SumGroup(const uint8_t* values, int group,
                                            const Int8Block* block, int64_t stride,
                                            typename Isa::Ints* sums) {
  constexpr int64_t kBytes = sizeof(Int8Block);
  SumInt8<Isa, Format, kRows>(values, group, block->values, stride * kBytes, sums);
}

// Register by register of a word: two sums for each row and register are all that fit.
template <typename Isa, typename Format, int kRows>
[[gnu::always_inline]] inline void SumGroup(const uint8_t* values, int group,
                                            const Int16Block* block, int64_t stride,
                                            typename Isa::Ints* sums) {
#pragma GCC unroll 2
  for (int part = 0; part < Isa::kParts; ++part) {
    typename Isa::Int16Sum sum[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < Group<Format>::kWords; ++i) {
      const int j = group * Group<Format>::kWords + i;
      const auto wide = Isa::Widen(Format::Values(values, j), part);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r].Add(i, wide, block[r * stride].wholes + 4 * j);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sum[r].StoreTotal(part, &sums[r]);
    // x is read anew for the next register: the compiler would keep all of it, and has no room.
    asm volatile("" ::: "memory");
  }
}

// totals[r] += a group of a block . row r.
template <typename Isa, typename Format, int kRows, typename Block>
[[gnu::always_inline]] inline void AddGroup(const uint8_t* facts, int64_t b, int group,
                                            const Block* block, int64_t stride,
                                            typename Isa::Ints* sums, Floats<Isa>* totals) {
  const Floats<Isa> scale = Format::Scale(facts, b, group);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const ActivationFacts& x_facts = block[r * stride].facts;
    if constexpr (Format::kOffsetBits != 0) {
      const int32_t x_sum = Group<Format>::Sum(x_facts, group);
      sums[r] = Isa::SubtractShifted(sums[r], x_sum, Format::kOffsetBits);
    }
    totals[r] = MultiplyAdd(Isa::ToFloats(sums[r]), scale * Floats<Isa>::Broadcast(x_facts.scale),
                            totals[r]);
  }
  if constexpr (Format::kHasMinimum) {
    const Floats<Isa> minimum = Format::Minimum(facts, b, group);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const ActivationFacts& x_facts = block[r * stride].facts;
      const float x_sum =
          Format::kGroups == 1
              ? x_facts.scaled_sum
              : x_facts.scale * static_cast<float>(Group<Format>::Sum(x_facts, group));
      totals[r] = MultiplyAdd(minimum, Floats<Isa>::Broadcast(x_sum), totals[r]);
    }
  }
}

// The panel at the end of a matrix, some of whose lanes do not exist.
[[gnu::noinline]] void StoreSomeLanes(const float* totals, const PanelOutput& output, float* out) {
  for (int i = 0; i < output.lanes; ++i) {
    const float total = output.bias != nullptr ? totals[i] + output.bias[i] : totals[i];
    out[i] = output.accumulate ? out[i] + total : total;
  }
}

template <typename Isa>
[[gnu::always_inline]] inline void StoreTotals(Floats<Isa> totals, const PanelOutput& output,
                                               int64_t row) {
  float* out = output.out + row * output.stride;
  if (output.lanes != Isa::kLanes) [[unlikely]] {
    float values[Isa::kLanes];
    totals.Store(values);
    return StoreSomeLanes(values, output, out);
  }
  if (output.bias != nullptr) totals = totals + Floats<Isa>::Load(output.bias);
  if (output.accumulate) totals = Floats<Isa>::Load(out) + totals;
  totals.Store(out);
}

// kRows rows of x from x_row on, against a panel of whole numbers.
template <typename Isa, typename Format>
struct IntProduct {
  static constexpr int kRowsAtOnce = 4;
  static constexpr int64_t kValueBytes = Format::kValueBytes * Isa::kLanes;
  static constexpr int64_t kFactBytes = Format::kFactBytes * Isa::kLanes;

  // Fetches the lines of a block and of its facts that lie `ahead` bytes further on.
  [[gnu::always_inline]] static void Prefetch(const uint8_t* values, const uint8_t* facts,
                                              int64_t ahead) {
#pragma GCC unroll 8
    for (int64_t line = 0; line < kValueBytes; line += 64) {
      __builtin_prefetch(values + ahead + line);
    }
    __builtin_prefetch(facts + ahead);
  }

  // total += the panel's columns * the outliers of a row.
  static void AddOutliers(const uint8_t* values, const uint8_t* facts,
                          std::span<const ActivationOutlier> outliers, Floats<Isa>* total) {
    for (const ActivationOutlier& outlier : outliers) {
      const int64_t b = outlier.column / kActivationBlock;
      const auto word = static_cast<int>(outlier.column % kActivationBlock / 4);
      const int group = word / Group<Format>::kWords;
      const uint8_t* block_facts = facts + b / Format::kFactBlocks * kFactBytes;
      auto q = Isa::Byte(Format::Values(values + b * kValueBytes, word),
                         static_cast<int>(outlier.column % 4));
      if constexpr (Format::kOffsetBits != 0) q = Isa::SubtractShifted(q, 1, Format::kOffsetBits);
      Floats<Isa> weight = Isa::ToFloats(q) * Format::Scale(block_facts, b, group);
      if constexpr (Format::kHasMinimum) {
        weight = weight + Format::Minimum(block_facts, b, group);
      }
      *total = MultiplyAdd(weight, Floats<Isa>::Broadcast(outlier.x), *total);
    }
  }

  template <int kRows>
  static void MultiplyRows(const std::byte* panel, const Activations& x, int64_t x_row,
                           int64_t out_row, const PanelOutput& output) {
    const int64_t blocks = x.cols / kActivationBlock;
    const auto* values = reinterpret_cast<const uint8_t*>(panel);
    const uint8_t* facts = values + blocks * kValueBytes;
    // The same place in the next panel, which is read after this one. The hardware's own prefetch
    // starts anew with each page and each of the two streams, and gives half the bandwidth.
    const int64_t ahead = blocks * kValueBytes + blocks / Format::kFactBlocks * kFactBytes;
    const auto* block = BlocksOf<Format::kActivation>::Rows(x) + x_row * blocks;
    Floats<Isa> totals[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) totals[r] = Floats<Isa>::Broadcast(0.0F);
    for (int64_t b = 0; b < blocks; ++b) {
      const uint8_t* block_facts = facts + b / Format::kFactBlocks * kFactBytes;
      Prefetch(values, block_facts, ahead);
#pragma GCC unroll 2
      for (int group = 0; group < Format::kGroups; ++group) {
        typename Isa::Ints sums[kRows];
        SumGroup<Isa, Format, kRows>(values, group, block, blocks, sums);
        AddGroup<Isa, Format, kRows>(block_facts, b, group, block, blocks, sums, totals);
      }
      values += kValueBytes;
      block += 1;
    }
    for (int r = 0; r < kRows; ++r) {
      if constexpr (Format::kActivation == ActivationType::kInt8) {
        AddOutliers(reinterpret_cast<const uint8_t*>(panel), facts, OutliersOf(x, x_row + r),
                    &totals[r]);
      }
      StoreTotals<Isa>(totals[r], output, out_row + r);
    }
  }
};

// --- Panels of floats ---

template <typename Isa>
struct F32Format : F32Layout {
  static constexpr int64_t kElementBytes = 4;
  static Floats<Isa> Column(const std::byte* panel, int64_t c) {
    return Floats<Isa>::Load(reinterpret_cast<const float*>(panel) + c * Isa::kLanes);
  }
};
template <typename Isa>
struct F16Format : F16Layout {
  static constexpr int64_t kElementBytes = 2;
  static Floats<Isa> Column(const std::byte* panel, int64_t c) {
    return LoadHalves<Isa::kLanes>(reinterpret_cast<const uint16_t*>(panel) + c * Isa::kLanes);
  }
};
template <typename Isa>
struct Bf16Format : Bf16Layout {
  static constexpr int64_t kElementBytes = 2;
  static Floats<Isa> Column(const std::byte* panel, int64_t c) {
    return LoadBfloat16s<Isa::kLanes>(reinterpret_cast<const uint16_t*>(panel) + c * Isa::kLanes);
  }
};

// Sums over the columns in rising order.
template <typename Isa, typename Format>
struct FloatProduct {
  // So many rows' sums fill the registers, next to the weights and a value of x.
  static constexpr int kRowsAtOnce = Isa::kFloatRows;
  static constexpr int64_t kColumnBytes = Format::kElementBytes * Isa::kLanes;

  template <int kRows>
  static void MultiplyRows(const std::byte* panel, const Activations& x, int64_t x_row,
                           int64_t out_row, const PanelOutput& output) {
    const float* rows = x.floats + x_row * x.cols;
    Floats<Isa> totals[kRows];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) totals[r] = Floats<Isa>::Broadcast(0.0F);
    const int64_t ahead = x.cols * kColumnBytes;  // the same place in the next panel
    for (int64_t c = 0; c < x.cols; ++c) {
      __builtin_prefetch(panel + c * kColumnBytes + ahead);
      const Floats<Isa> weights = Format::Column(panel, c);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        totals[r] = MultiplyAdd(weights, Floats<Isa>::Broadcast(rows[r * x.cols + c]), totals[r]);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) StoreTotals<Isa>(totals[r], output, out_row + r);
  }
};

// As many of the rows as whole calls of kRows take, then 4, 2 and 1 at a time.
template <typename Product, int kRows>
[[gnu::always_inline]] inline void MultiplyFrom(int64_t r, const std::byte* panel,
                                                const Activations& x, int64_t row_begin,
                                                int64_t rows, const PanelOutput& output) {
  for (; r + kRows <= rows; r += kRows) {
    Product::template MultiplyRows<kRows>(panel, x, row_begin + r, r, output);
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > 4 ? 4 : kRows / 2;
    MultiplyFrom<Product, kFewer>(r, panel, x, row_begin, rows, output);
  }
}

// Any number of rows, as many at a time as fit the registers.
template <typename Product>
void MultiplyPanel(const std::byte* panel, const Activations& x, int64_t row_begin, int64_t rows,
                   const PanelOutput& output) {
  MultiplyFrom<Product, Product::kRowsAtOnce>(0, panel, x, row_begin, rows, output);
}

}  // namespace
}  // namespace polysil::kernels

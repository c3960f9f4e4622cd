// How a panel of kLanes weight rows lies in memory, format by format. Lane = row. Formats of
// whole-number values hold two areas, each a stream that a product reads once from front to back:
//
//   values: for each block of 32 columns, words of 4 bytes per lane: word w of all lanes, then w
//   + 1... facts:  for each block (or each 8 blocks), the scales and minimums of all lanes, one
//   field after
//           the other
//
// A word of bytes holds 4 columns in a row; a word of nibbles holds columns 4w..4w+3 in the low
// nibbles and 16+4w..16+4w+3 in the high ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polysil::kernels {

enum class PanelKind {
  kF32,
  kF16,
  kBf16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIq4,
  kIq3S,
  kIq2Xs,
  kMxfp4,
};
inline constexpr int32_t kPanelKinds = 17;

// Sizes per lane: kValueBytes of each block of 32, kFactBytes of each kFactBlocks blocks.
template <int kValueBytesOf, int kFactBytesOf, int kFactBlocksOf = 1>
struct BlockLayout {
  static constexpr int kValueBytes = kValueBytesOf;
  static constexpr int kFactBytes = kFactBytesOf;
  static constexpr int kFactBlocks = kFactBlocksOf;
};

// value = q - 8 (Q4_0) or q; facts: scale, minimum as float16.
struct Q4_0Layout : BlockLayout<16, 2> {};
struct Q4_1Layout : BlockLayout<16, 4> {};
// Nibbles, then one word: bit j of byte t is the fifth bit of column 4j + t.
struct Q5_0Layout : BlockLayout<20, 2> {};
struct Q5_1Layout : BlockLayout<20, 4> {};
// Bytes: value + 128.
struct Q8_0Layout : BlockLayout<32, 2> {};
// Per 256 columns: scale and minus the minimum as float16, then for each block of 32 its scale and
// minimum as bytes. Q5_K has the fifth bits of Q5_0.
struct Q4_KLayout : BlockLayout<16, 20, 8> {};
struct Q5_KLayout : BlockLayout<20, 20, 8> {};
// Nibbles, then two words: bits 2s, 2s+1 of byte t of word h are the upper bits of column
// 16h + 4s + t; value + 32. Per 256 columns: scale as float16, then 16 signed scale bytes.
struct Q6_KLayout : BlockLayout<24, 18, 8> {};
// Nibbles that index a code book; facts: scale as float.
struct Iq4Layout : BlockLayout<16, 4> {};
struct Mxfp4Layout : BlockLayout<16, 4> {};
// Nibbles: value + 4; two scales as float, one for each 16 columns.
struct Q3_KLayout : BlockLayout<16, 8> {};
// Nibbles; two scales, then two minimums to add, as float.
struct Q2_KLayout : BlockLayout<16, 16> {};
// Bytes: value + 128; one scale or two as float.
struct Iq3SLayout : BlockLayout<32, 4> {};
struct Iq2XsLayout : BlockLayout<32, 8> {};

// Floats: column c of all lanes, then c + 1.
struct F32Layout {};
struct F16Layout {};
struct Bf16Layout {};

}  // namespace polysil::kernels

#include "kernels/cpu/panel_pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/panel_layout.h"
#include "kernels/reference/block_fields.h"

namespace polysil::kernels {
namespace {

constexpr uint32_t kLowNibbles = 0x0F0F0F0FU;
constexpr uint32_t kLowBits = 0x01010101U;
constexpr uint32_t kSigns = 0x80808080U;

uint32_t LoadWord(const uint8_t* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// One lane of a panel: where the values and the facts of its blocks go.
template <typename Layout, int kLanes>
struct Lane {
  uint8_t* values;
  uint8_t* facts;
  int lane;

  void PutWord(int64_t block, int word, uint32_t value) const {
    uint8_t* to = values + (block * Layout::kValueBytes + word * 4) * kLanes + lane * 4;
    std::memcpy(to, &value, sizeof(value));
  }
  // A field `at` bytes per lane into the facts of a block.
  template <typename Field>
  void PutFact(int64_t block, int at, Field value) const {
    uint8_t* to = facts + (block / Layout::kFactBlocks * Layout::kFactBytes + at) * kLanes +
                  lane * static_cast<int>(sizeof(Field));
    std::memcpy(to, &value, sizeof(value));
  }
};

// Words of nibbles as most formats store them: 16 bytes, low nibbles first.
template <typename To>
void PutPairs(const To& to, int64_t block, const uint8_t* pairs) {
  for (int w = 0; w < 4; ++w) to.PutWord(block, w, LoadWord(pairs + 4 * w));
}

// 32 values below 16 as words of nibbles.
template <typename To, typename Value>
void PutNibbles(const To& to, int64_t block, const Value& value) {
  for (int w = 0; w < 4; ++w) {
    uint32_t word = 0;
    for (int t = 0; t < 4; ++t) {
      word |= static_cast<uint32_t>(value(4 * w + t) | value(16 + 4 * w + t) << 4) << (8 * t);
    }
    to.PutWord(block, w, word);
  }
}

// 32 values as bytes, 128 added.
template <typename To, typename Value>
void PutBytes(const To& to, int64_t block, const Value& value) {
  for (int w = 0; w < 8; ++w) {
    uint32_t word = 0;
    for (int t = 0; t < 4; ++t) word |= static_cast<uint32_t>(value(4 * w + t) + 128) << (8 * t);
    to.PutWord(block, w, word);
  }
}

// Bits k = 4j + t of `bits` to bit j of byte t.
uint32_t SpreadFifthBits(uint32_t bits) {
  uint32_t word = 0;
  for (int j = 0; j < 8; ++j) {
    // The product puts copies of the four bits so that bit t stands at the bottom of byte t.
    word |= ((bits >> (4 * j) & 15U) * 0x00204081U & kLowBits) << j;
  }
  return word;
}

// The packers: one row of `cols` columns into a lane. `from` holds whole blocks.

template <typename To>
void PackRow(Q4_0Layout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b, from += 18) {
    to.PutFact(b, 0, Load16(from));
    PutPairs(to, b, from + 2);
  }
}

template <typename To>
void PackRow(Q4_1Layout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b, from += 20) {
    to.PutFact(b, 0, Load16(from));
    to.PutFact(b, 2, Load16(from + 2));
    PutPairs(to, b, from + 4);
  }
}

template <typename To>
void PackRow(Q5_0Layout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b, from += 22) {
    to.PutFact(b, 0, Load16(from));
    to.PutWord(b, 4, SpreadFifthBits(LoadWord(from + 2)));
    PutPairs(to, b, from + 6);
  }
}

template <typename To>
void PackRow(Q5_1Layout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b, from += 24) {
    to.PutFact(b, 0, Load16(from));
    to.PutFact(b, 2, Load16(from + 2));
    to.PutWord(b, 4, SpreadFifthBits(LoadWord(from + 4)));
    PutPairs(to, b, from + 8);
  }
}

template <typename To>
void PackRow(Q8_0Layout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b, from += 34) {
    to.PutFact(b, 0, Load16(from));
    for (int w = 0; w < 8; ++w) to.PutWord(b, w, LoadWord(from + 2 + 4 * w) ^ kSigns);
  }
}

// Block b of eight in Q4_K and Q5_K: low nibbles of bytes [32 i, 32 i + 32) are block 2i, high ones
// 2i + 1.
template <typename To>
void PutKNibbles(const To& to, int64_t block, const uint8_t* pairs) {
  const uint8_t* bytes = pairs + block % 8 / 2 * 32;
  const int shift = block % 2 == 0 ? 0 : 4;
  for (int w = 0; w < 4; ++w) {
    const uint32_t low = LoadWord(bytes + 4 * w) >> shift & kLowNibbles;
    const uint32_t high = LoadWord(bytes + 16 + 4 * w) >> shift & kLowNibbles;
    to.PutWord(block, w, low | high << 4);
  }
}

// Scales of 256 columns of Q4_K and Q5_K, whose first block is `block`.
template <typename To>
void PutKScales(const To& to, int64_t block, const uint8_t* from) {
  constexpr int kSign = 0x8000;
  to.PutFact(block, 0, Load16(from));
  to.PutFact(block, 2, static_cast<uint16_t>(Load16(from + 2) ^ kSign));
  for (int i = 0; i < 8; ++i) {
    const ScaleAndMinimum group = ScaleQ4K(from + 4, i);
    to.PutFact(block, 4 + 2 * i, group.scale);
    to.PutFact(block, 5 + 2 * i, group.minimum);
  }
}

template <typename To>
void PackRow(Q4_KLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; b += 8, from += 144) {
    PutKScales(to, b, from);
    for (int i = 0; i < 8; ++i) PutKNibbles(to, b + i, from + 16);
  }
}

template <typename To>
void PackRow(Q5_KLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; b += 8, from += 176) {
    PutKScales(to, b, from);
    for (int i = 0; i < 8; ++i) {
      PutKNibbles(to, b + i, from + 48);
      uint32_t fifth_bits = 0;  // bit i of byte 4j + t to bit j of byte t
      for (int j = 0; j < 8; ++j) {
        fifth_bits |= (LoadWord(from + 16 + 4 * j) >> i & kLowBits) << j;
      }
      to.PutWord(b + i, 4, fifth_bits);
    }
  }
}

// Block i of eight in Q6_K: nibbles of 64 bytes for each 128 columns, upper bits in 32 bytes.
template <typename To>
void PutQ6KValues(const To& to, int64_t block, int i, const uint8_t* from) {
  const uint8_t* pairs = from + i / 4 * 64 + i % 2 * 32;
  const uint8_t* uppers = from + 128 + i / 4 * 32;
  const int shift = i % 4 < 2 ? 0 : 4;
  for (int w = 0; w < 4; ++w) {
    const uint32_t low = LoadWord(pairs + 4 * w) >> shift & kLowNibbles;
    const uint32_t high = LoadWord(pairs + 16 + 4 * w) >> shift & kLowNibbles;
    to.PutWord(block, w, low | high << 4);
  }
  for (int h = 0; h < 2; ++h) {
    uint32_t word = 0;
    for (int s = 0; s < 4; ++s) {
      word |= (LoadWord(uppers + 16 * h + 4 * s) >> (i % 4 * 2) & 0x03030303U) << (2 * s);
    }
    to.PutWord(block, 4 + h, word);
  }
}

template <typename To>
void PackRow(Q6_KLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; b += 8, from += 210) {
    to.PutFact(b, 0, Load16(from + 208));
    for (int i = 0; i < 16; ++i) to.PutFact(b, 2 + i, from[192 + i]);
    for (int i = 0; i < 8; ++i) PutQ6KValues(to, b + i, i, from);
  }
}

template <typename To>
void PackRow(Iq4Layout, WeightType type, const uint8_t* from, int64_t cols, const To& to) {
  if (type == WeightType::kIQ4_NL) {
    for (int64_t b = 0; b < cols / 32; ++b, from += 18) {
      to.PutFact(b, 0, LoadHalf(from));
      PutPairs(to, b, from + 2);
    }
    return;
  }
  for (int64_t b = 0; b < cols / 32; ++b) {  // IQ4_XS
    const uint8_t* block = from + b / 8 * 136;
    const auto group = static_cast<int>(b % 8);
    to.PutFact(b, 0, ScaleIq4Xs(block, group));
    PutPairs(to, b, block + 8 + 16 * group);
  }
}

template <typename To>
void PackRow(Mxfp4Layout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b, from += 17) {
    to.PutFact(b, 0, ScaleMxfp4(from));
    PutPairs(to, b, from + 1);
  }
}

template <typename To>
void PackRow(Q3_KLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const Q3KBlock block = {from + b / 8 * 110};
    const auto group = static_cast<int>(b % 8);
    for (int g = 0; g < 2; ++g) to.PutFact(b, 4 * g, block.group_scale(2 * group + g));
    PutNibbles(to, b, [&](int k) { return block.value(group * 32 + k); });
  }
}

template <typename To>
void PackRow(Q2_KLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const Q2KBlock block = {from + b / 8 * 84};
    const auto group = static_cast<int>(b % 8);
    for (int g = 0; g < 2; ++g) {
      to.PutFact(b, 4 * g, block.group_scale(2 * group + g));
      to.PutFact(b, 8 + 4 * g, -block.group_minimum(2 * group + g));
    }
    PutNibbles(to, b, [&](int k) { return block.value(group * 32 + k); });
  }
}

template <typename To>
void PackRow(Iq3SLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const Iq3SBlock block = {from + b / 8 * 110};
    const auto group = static_cast<int>(b % 8);
    to.PutFact(b, 0, block.group_scale(group));
    PutBytes(to, b, [&](int k) { return block.value(group * 32 + k); });
  }
}

template <typename To>
void PackRow(Iq2XsLayout, WeightType, const uint8_t* from, int64_t cols, const To& to) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const Iq2XsBlock block = {from + b / 8 * 74};
    const auto group = static_cast<int>(b % 8);
    for (int g = 0; g < 2; ++g) to.PutFact(b, 4 * g, block.group_scale(2 * group + g));
    PutBytes(to, b, [&](int k) { return block.value(group * 32 + k); });
  }
}

int64_t RoundUp64(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// Panels of whole numbers.
template <typename Layout, int kLanes>
struct Panel {
  static int64_t FactsOffset(int64_t cols) { return cols / 32 * Layout::kValueBytes * kLanes; }
  static int64_t Bytes(int64_t cols) {
    const int64_t fact_groups = cols / 32 / Layout::kFactBlocks;
    return RoundUp64(FactsOffset(cols) + fact_groups * Layout::kFactBytes * kLanes);
  }
  static void Pack(WeightType type, const uint8_t* from, int64_t row_bytes, int32_t rows,
                   int64_t cols, uint8_t* panel) {
    for (int32_t r = 0; r < rows; ++r) {
      const Lane<Layout, kLanes> lane = {panel, panel + FactsOffset(cols), r};
      PackRow(Layout(), type, from + r * row_bytes, cols, lane);
    }
  }
};

// Panels of 16-bit floats, which are copied as they are.
template <int kLanes>
struct HalvesPanel {
  static int64_t Bytes(int64_t cols) { return RoundUp64(cols * kLanes * 2); }
  static void Pack(WeightType, const uint8_t* from, int64_t row_bytes, int32_t rows, int64_t cols,
                   uint8_t* panel) {
    for (int32_t r = 0; r < rows; ++r) {
      const uint8_t* row = from + r * row_bytes;
      uint8_t* to = panel + r * 2;
      for (int64_t c = 0; c < cols; ++c) std::memcpy(to + c * kLanes * 2, row + c * 2, 2);
    }
  }
};
template <int kLanes>
struct Panel<F16Layout, kLanes> : HalvesPanel<kLanes> {};
template <int kLanes>
struct Panel<Bf16Layout, kLanes> : HalvesPanel<kLanes> {};

// Panels of floats hold the exact values of any type.
template <int kLanes>
struct Panel<F32Layout, kLanes> {
  static int64_t Bytes(int64_t cols) { return RoundUp64(cols * kLanes * 4); }
  static void Pack(WeightType type, const uint8_t* from, int64_t row_bytes, int32_t rows,
                   int64_t cols, uint8_t* panel) {
    constexpr int64_t kColsAtOnce = 256;  // the largest block
    const WeightBlock block = BlockOf(type);
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; c += kColsAtOnce) {
        const int64_t count = std::min(kColsAtOnce, cols - c);
        const uint8_t* blocks = from + r * row_bytes + c / block.values * block.bytes;
        float values[kColsAtOnce];
        Dequantise(type, reinterpret_cast<const std::byte*>(blocks), count, values);
        uint8_t* to = panel + (c * kLanes + r) * 4;
        for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * kLanes * 4, values + i, 4);
      }
    }
  }
};

template <typename Layout, int kLanes>
void Pack(WeightType type, const std::byte* from, int64_t row_bytes, int32_t rows, int64_t cols,
          std::byte* panel) {
  using Format = Panel<Layout, kLanes>;
  if (rows < kLanes) std::memset(panel, 0, static_cast<size_t>(Format::Bytes(cols)));
  Format::Pack(type, reinterpret_cast<const uint8_t*>(from), row_bytes, rows, cols,
               reinterpret_cast<uint8_t*>(panel));
}

template <int kLanes, typename... Layouts>
constexpr std::array<PanelPacker, sizeof...(Layouts)> Packers() {
  return {PanelPacker{Panel<Layouts, kLanes>::Bytes, Pack<Layouts, kLanes>}...};
}

// In the order of PanelKind.
template <int kLanes>
constexpr auto kPackers =
    Packers<kLanes, F32Layout, F16Layout, Bf16Layout, Q8_0Layout, Q4_0Layout, Q4_1Layout,
            Q5_0Layout, Q5_1Layout, Q2_KLayout, Q3_KLayout, Q4_KLayout, Q5_KLayout, Q6_KLayout,
            Iq4Layout, Iq3SLayout, Iq2XsLayout, Mxfp4Layout>();
static_assert(kPackers<8>.size() == kPanelKinds);

}  // namespace

PanelKind PanelKindOf(WeightType type, bool exact) {
  if (exact && BlockOf(type).values > 1) return PanelKind::kF32;
  switch (type) {
    case WeightType::kF32:
      return PanelKind::kF32;
    case WeightType::kF16:
      return PanelKind::kF16;
    case WeightType::kBF16:
      return PanelKind::kBf16;
    case WeightType::kQ8_0:
      return PanelKind::kQ8_0;
    case WeightType::kQ4_0:
      return PanelKind::kQ4_0;
    case WeightType::kQ4_1:
      return PanelKind::kQ4_1;
    case WeightType::kQ5_0:
      return PanelKind::kQ5_0;
    case WeightType::kQ5_1:
      return PanelKind::kQ5_1;
    case WeightType::kQ2_K:
      return PanelKind::kQ2_K;
    case WeightType::kQ3_K:
      return PanelKind::kQ3_K;
    case WeightType::kQ4_K:
      return PanelKind::kQ4_K;
    case WeightType::kQ5_K:
      return PanelKind::kQ5_K;
    case WeightType::kQ6_K:
      return PanelKind::kQ6_K;
    case WeightType::kIQ4_NL:
    case WeightType::kIQ4_XS:
      return PanelKind::kIq4;
    case WeightType::kIQ3_S:
      return PanelKind::kIq3S;
    case WeightType::kIQ2_XS:
      return PanelKind::kIq2Xs;
    case WeightType::kMXFP4:
      return PanelKind::kMxfp4;
  }
  __builtin_unreachable();
}

const PanelPacker& PackerFor(PanelKind kind, int32_t lanes) {
  const auto index = static_cast<size_t>(kind);
  return lanes == 16 ? kPackers<16>[index] : kPackers<8>[index];
}

}  // namespace polysil::kernels

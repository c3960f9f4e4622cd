// Attention by chunks of positions against the reference; invariant to what else is in a call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/kernel_tables.h"
#include "kernels/random_data.h"
#include "kernels/reference/reference.h"

namespace polysil::kernels {
namespace {

struct Case {
  int32_t head_size;
  KvType type;
  float softcap;
  int32_t window;
};

// Keys and values of one KV head, and the queries of `group` heads at each position.
class Head {
 public:
  Head(const Case& shape, int32_t positions, int32_t group)
      : shape_(shape),
        group_(group),
        keys_(RandomFloats(int64_t{positions} * shape.head_size, 1)),
        values_(RandomFloats(int64_t{positions} * shape.head_size, 2)),
        q_(RandomFloats(int64_t{positions} * group * shape.head_size, 3)) {
    for (std::vector<float>* floats : {&keys_, &values_}) {
      for (int32_t p = 0; p < positions; ++p) Round(floats->data() + p * shape.head_size, nullptr);
    }
    stored_keys_ = Store(keys_, false);
    stored_values_ = Store(values_, true);
  }

  // Puts `number` into the first element of all queries, the key or the value of a position.
  void Spoil(char what, int32_t position, float number) {
    const auto at = static_cast<size_t>(position * shape_.head_size);
    if (what == 'q') {
      for (int32_t i = 0; i < group_; ++i) q_[at * group_ + i * shape_.head_size] = number;
    }
    if (what == 'k') keys_[at] = number;
    if (what == 'v') values_[at] = number;
    stored_keys_ = Store(keys_, false);
    stored_values_ = Store(values_, true);
  }

  // Queries of positions [begin, begin + rows), each row of `group` heads.
  std::vector<float> Attend(const CpuKernels& kernels, int32_t begin, int32_t rows) const {
    const int32_t queries = rows * group_;
    const int32_t padded = PaddedHeadSize(shape_.head_size);
    const Partials all(queries, padded);
    const Partials next(queries, padded);
    const int32_t chunks = (begin + rows - 1) / kAttentionChunk + 1;
    for (int32_t c = 0; c < chunks; ++c) {
      AttendChunk(kernels, begin, rows, c, next.view);
      kernels.merge_partials(queries, shape_.head_size, next.view, all.view);
    }
    std::vector<float> out;
    for (int32_t i = 0; i < queries; ++i) {
      for (int32_t d = 0; d < shape_.head_size; ++d) {
        out.push_back(all.view.sums[i * padded + d] / all.view.totals[i]);
      }
    }
    return out;
  }

  std::vector<float> Expected(int32_t begin, int32_t rows) const {
    const reference::AttentionShape shape = {
        group_, 1, shape_.head_size, kScale, shape_.softcap, shape_.window};
    const int64_t row_floats = int64_t{group_} * shape_.head_size;
    std::vector<float> out(static_cast<size_t>(rows * row_floats));
    for (int32_t r = 0; r < rows; ++r) {
      reference::Attention(q_.data() + (begin + r) * row_floats, keys_.data(), values_.data(),
                           begin + r, shape, out.data() + r * row_floats);
    }
    return out;
  }

 private:
  static constexpr float kScale = 0.2F;

  struct Partials {
    Partials(int32_t queries, int32_t padded)
        : memory(static_cast<size_t>(queries) * (2 + padded)),
          view{memory.data(), memory.data() + queries, memory.data() + 2 * queries} {}
    mutable std::vector<float> memory;
    AttentionPartials view;
  };

  // Makes a key or value what is stored of it, and writes that.
  float Round(float* token, int8_t* bytes) const {
    float largest = 0.0F;
    for (int32_t d = 0; d < shape_.head_size; ++d) largest = std::max(largest, std::abs(token[d]));
    const float sum = std::accumulate(token, token + shape_.head_size, 0.0F);
    const float scale = std::isfinite(sum) ? largest / 127.0F : NAN;
    for (int32_t d = 0; d < shape_.head_size; ++d) {
      if (shape_.type == KvType::kHalf) token[d] = HalfToFloat(FloatToHalf(token[d]));
      if (shape_.type != KvType::kInt8) continue;
      const float whole = std::isfinite(sum) ? std::nearbyint(token[d] * (127.0F / largest)) : 0.0F;
      if (bytes != nullptr) bytes[d] = static_cast<int8_t>(whole);
      token[d] = whole * scale;
    }
    return scale;
  }

  // As a block has them, nothing that is a number behind the last position.
  std::vector<std::byte> Store(const std::vector<float>& tokens, bool value) const {
    const int32_t size = shape_.head_size;
    const auto positions = static_cast<int32_t>(tokens.size()) / size;
    const int64_t group_bytes = KvGroupBytes(shape_.type, size);
    std::vector<std::byte> stored(
        static_cast<size_t>((positions + kKeyGroup - 1) / kKeyGroup * group_bytes),
        std::byte{0xFF});
    for (int32_t p = 0; p < positions; ++p) {
      std::byte* group = stored.data() + p / kKeyGroup * group_bytes;
      std::vector<float> token(tokens.begin() + p * size, tokens.begin() + (p + 1) * size);
      std::vector<int8_t> bytes(token.size());
      const float scale = Round(token.data(), bytes.data());
      const int32_t t = p % kKeyGroup;
      for (int32_t d = 0; d < size; ++d) {
        const int32_t at = value ? t * size + d : d * kKeyGroup + t;
        const auto i = static_cast<size_t>(d);
        if (shape_.type == KvType::kFloat) std::memcpy(group + at * 4, &token[i], 4);
        if (shape_.type == KvType::kHalf) {
          const uint16_t half = FloatToHalf(token[i]);
          std::memcpy(group + at * 2, &half, 2);
        }
        if (shape_.type == KvType::kInt8) {
          const int32_t pair = value ? t / 2 * size + d : d / 2 * kKeyGroup + t;
          group[2 * pair + (value ? t : d) % 2] = static_cast<std::byte>(bytes[i]);
        }
      }
      if (shape_.type != KvType::kInt8) continue;
      std::memcpy(group + kKeyGroup * size + t * 4, &scale, sizeof(scale));
    }
    return stored;
  }

  void AttendChunk(const CpuKernels& kernels, int32_t begin, int32_t rows, int32_t chunk,
                   const AttentionPartials& partials) const {
    const int32_t queries = rows * group_;
    const int32_t padded = PaddedHeadSize(shape_.head_size);
    const int32_t origin = chunk * kAttentionChunk;
    std::vector<float> q(static_cast<size_t>(queries * padded), 0.0F);
    std::vector<int32_t> begins;
    std::vector<int32_t> ends;
    for (int32_t i = 0; i < queries; ++i) {
      const int32_t position = begin + i / group_;
      const float* from = q_.data() + (int64_t{position} * group_ + i % group_) * shape_.head_size;
      std::copy(from, from + shape_.head_size, q.begin() + i * padded);
      const int32_t first = shape_.window > 0 ? position - shape_.window + 1 : 0;
      begins.push_back(std::clamp(first - origin, 0, kAttentionChunk));
      ends.push_back(std::clamp(position + 1 - origin, 0, kAttentionChunk));
    }
    const int32_t end = std::min(kAttentionChunk, begin + rows - origin);
    std::vector<const std::byte*> keys;
    std::vector<const std::byte*> values;
    const int64_t group_bytes = KvGroupBytes(shape_.type, shape_.head_size);
    for (int32_t p = 0; p < end; p += kKeyGroup) {
      const int64_t at = (origin + p) / kKeyGroup * group_bytes;
      keys.push_back(stored_keys_.data() + at);
      values.push_back(stored_values_.data() + at);
    }
    std::vector<float> scratch(
        static_cast<size_t>(AttentionScratchFloats(queries, shape_.head_size)));
    kernels.attend_chunk({.queries = queries,
                          .head_size = shape_.head_size,
                          .type = shape_.type,
                          .scale = kScale,
                          .softcap = shape_.softcap,
                          .q = q.data(),
                          .begins = begins.data(),
                          .ends = ends.data(),
                          .keys = keys.data(),
                          .values = values.data(),
                          .reads = keys.data(),
                          .reads_count = static_cast<int32_t>(keys.size())},
                         scratch.data(), partials);
  }

  Case shape_;
  int32_t group_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<std::byte> stored_keys_;
  std::vector<std::byte> stored_values_;
  std::vector<float> q_;
};

constexpr KvType kFloat = KvType::kFloat;
constexpr KvType kHalf = KvType::kHalf;
constexpr KvType kInt8 = KvType::kInt8;
constexpr Case kCases[] = {
    {64, kFloat, 0.0F, 0},   {64, kHalf, 0.0F, 0},     {64, kHalf, 4.0F, 24},
    {12, kHalf, 0.0F, 0},    {20, kFloat, 0.0F, 16},   {80, kHalf, 50.0F, 0},
    {128, kHalf, 0.0F, 31},  {256, kFloat, 0.0F, 300}, {4, kFloat, 2.0F, 1},
    {72, kFloat, 0.0F, 257}, {64, kInt8, 0.0F, 0},     {64, kInt8, 4.0F, 24},
    {80, kInt8, 50.0F, 0},   {96, kInt8, 0.0F, 257},   {128, kInt8, 0.0F, 31},
    {256, kInt8, 0.0F, 300}, {2, kInt8, 0.0F, 1},      {12, kInt8, 0.0F, 65},
};

// Queries and weights of values are rounded to 16 bits beside 8-bit keys and values.
constexpr double ToleranceOf(KvType type) {
  return type == kInt8 ? 5e-4 : 5e-6;
}

TEST(Attention, IsTheReferenceOnEveryInstructionSet) {
  constexpr int32_t kPositions = 600;
  for (const Case& shape : kCases) {
    const Head head(shape, kPositions, 3);
    for (const int32_t begin : {0, 1, 15, 16, 255, 256, 511, 599}) {
      const int32_t rows = std::min(4, kPositions - begin);
      const std::vector<float> expected = head.Expected(begin, rows);
      std::vector<uint32_t> first;
      for (const NamedKernels& named : TestedKernels()) {
        const std::vector<float> out = head.Attend(*named.kernels, begin, rows);
        for (size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(out[i], expected[i], ToleranceOf(shape.type))
              << named.name << " head size " << shape.head_size << " position " << begin;
        }
        if (first.empty()) first = BitsOf(out);
        EXPECT_EQ(BitsOf(out), first) << named.name << " head size " << shape.head_size;
      }
    }
  }
}

TEST(Attention, ARowIsTheSameInAnyTile) {
  constexpr int32_t kRows = 70;
  // Across the border of two chunks; with windows that begin at every place of a chunk's strips.
  for (const int32_t begin : {230, 30, 350}) {
    for (const Case& shape : kCases) {
      const Head head(shape, begin + kRows, 2);
      for (const NamedKernels& named : TestedKernels()) {
        std::vector<float> alone;
        for (int32_t r = 0; r < kRows; ++r) {
          const std::vector<float> row = head.Attend(*named.kernels, begin + r, 1);
          alone.insert(alone.end(), row.begin(), row.end());
        }
        for (const int32_t tile : {2, 5, 17, kRows}) {
          std::vector<float> tiled;
          for (int32_t r = 0; r < kRows; r += tile) {
            const std::vector<float> rows =
                head.Attend(*named.kernels, begin + r, std::min(tile, kRows - r));
            tiled.insert(tiled.end(), rows.begin(), rows.end());
          }
          ASSERT_EQ(BitsOf(tiled), BitsOf(alone)) << named.name << " tile " << tile;
        }
      }
    }
  }
}

TEST(Attention, GroupsShareKeysButNotResults) {
  const Case shape = {64, kHalf, 0.0F, 0};
  for (const int32_t group : {1, 2, 3, 4, 7, 8, 16, 17}) {
    const Head head(shape, 300, group);
    const std::vector<float> out = head.Attend(KernelsFor(BestIsa()), 298, 1);
    const std::vector<float> expected = head.Expected(298, 1);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 5e-6) << group;
  }
}

TEST(Attention, AnEightBitTokenIsRoundedToTheNearest) {
  for (const NamedKernels& named : TestedKernels()) {
    for (const int32_t size : {2, 12, 64, 80, 256}) {
      std::vector<float> x = RandomFloats(size, static_cast<uint32_t>(size), 3.0F);
      std::vector<int8_t> q(x.size());
      const float scale = named.kernels->quantise_kv(x.data(), size, q.data());
      float largest = 0.0F;
      for (const float value : x) largest = std::max(largest, std::abs(value));
      EXPECT_EQ(scale, largest / 127.0F);
      for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(scale * q[i], x[i], 0.5001F * scale);
      std::fill(x.begin(), x.end(), 0.0F);
      EXPECT_EQ(named.kernels->quantise_kv(x.data(), size, q.data()), 0.0F);
      for (const float spoiled : {INFINITY, -INFINITY, NAN}) {
        x.back() = spoiled;
        EXPECT_TRUE(std::isnan(named.kernels->quantise_kv(x.data(), size, q.data())));
      }
    }
  }
}

TEST(Attention, ANumberThatIsNoneIsSeenByThoseWhoSeeItOnly) {
  constexpr int32_t kSpoiled = 70;
  constexpr int32_t kPositions = 140;
  for (const Case& shape : kCases) {
    for (const float spoiled : {INFINITY, -INFINITY, NAN}) {
      for (const char what : {'q', 'k', 'v'}) {
        Head head(shape, kPositions, 3);
        head.Spoil(what, kSpoiled, spoiled);
        for (const NamedKernels& named : TestedKernels()) {
          const std::vector<float> out = head.Attend(*named.kernels, 60, kPositions - 60);
          for (int32_t p = 60; p < kPositions; ++p) {
            const bool in_window = shape.window == 0 || p < kSpoiled + shape.window;
            const bool sees = what == 'q' ? p == kSpoiled : p >= kSpoiled && in_window;
            const auto row = static_cast<size_t>((p - 60) * 3 * shape.head_size);
            const bool finite = std::isfinite(out[row]);
            // An infinite score may be weighed with nothing, or capped.
            if (what != 'v' && std::isinf(spoiled) && sees && shape.type != kInt8) continue;
            EXPECT_EQ(finite, !sees) << named.name << " " << what << " at " << p << " head size "
                                     << shape.head_size << " window " << shape.window;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

// Attention by chunks of positions against the reference; invariant to what else is in a call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kernel_tables.h"
#include "kernels/random_data.h"
#include "kernels/reference/reference.h"

namespace polysil::kernels {
namespace {

struct Case {
  int32_t head_size;
  bool halves;
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
    const int64_t stored = (positions + kKeyGroup - 1) / kKeyGroup * kKeyGroup * shape.head_size;
    const auto nowhere = std::numeric_limits<float>::quiet_NaN();
    stored_keys_.resize(static_cast<size_t>(stored), nowhere);
    stored_values_.resize(static_cast<size_t>(stored), nowhere);
    for (int32_t p = 0; p < positions; ++p) {
      for (int32_t d = 0; d < shape.head_size; ++d) {
        const auto at = static_cast<size_t>(p * shape.head_size + d);
        if (shape.halves) {
          keys_[at] = HalfToFloat(FloatToHalf(keys_[at]));
          values_[at] = HalfToFloat(FloatToHalf(values_[at]));
        }
        const int32_t group_begin = p / kKeyGroup * kKeyGroup * shape.head_size;
        stored_keys_[static_cast<size_t>(group_begin + d * kKeyGroup + p % kKeyGroup)] = keys_[at];
        stored_values_[at] = values_[at];
      }
    }
    if (!shape.halves) return;
    for (const std::vector<float>* floats : {&stored_keys_, &stored_values_}) {
      for (const float value : *floats) halves_.push_back(FloatToHalf(value));
    }
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

  // `position` is the first of a group.
  const std::byte* Group(bool value, int32_t position) const {
    const int64_t at = int64_t{position} * shape_.head_size;
    if (shape_.halves) {
      const int64_t values_begin = value ? static_cast<int64_t>(halves_.size()) / 2 : 0;
      return reinterpret_cast<const std::byte*>(halves_.data() + values_begin + at);
    }
    return reinterpret_cast<const std::byte*>((value ? stored_values_ : stored_keys_).data() + at);
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
    for (int32_t p = 0; p < end; p += kKeyGroup) {
      keys.push_back(Group(false, origin + p));
      values.push_back(Group(true, origin + p));
    }
    std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(queries)));
    kernels.attend_chunk({.queries = queries,
                          .head_size = shape_.head_size,
                          .halves = shape_.halves,
                          .scale = kScale,
                          .softcap = shape_.softcap,
                          .q = q.data(),
                          .begins = begins.data(),
                          .ends = ends.data(),
                          .keys = keys.data(),
                          .values = values.data()},
                         scratch.data(), partials);
  }

  Case shape_;
  int32_t group_;
  std::vector<float> keys_;
  std::vector<float> values_;
  // As a block has them, no numbers behind the last position.
  std::vector<float> stored_keys_;
  std::vector<float> stored_values_;
  std::vector<uint16_t> halves_;  // keys, then values
  std::vector<float> q_;
};

constexpr Case kCases[] = {
    {64, false, 0.0F, 0},  {64, true, 0.0F, 0},    {64, true, 4.0F, 24},  {12, true, 0.0F, 0},
    {20, false, 0.0F, 16}, {80, true, 50.0F, 0},   {128, true, 0.0F, 31}, {256, false, 0.0F, 300},
    {4, false, 2.0F, 1},   {72, false, 0.0F, 257},
};

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
          ASSERT_NEAR(out[i], expected[i], 5e-6)
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
  const Case shape = {64, true, 0.0F, 0};
  for (const int32_t group : {1, 2, 3, 4, 7, 8, 16, 17}) {
    const Head head(shape, 300, group);
    const std::vector<float> out = head.Attend(KernelsFor(BestIsa()), 298, 1);
    const std::vector<float> expected = head.Expected(298, 1);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 5e-6) << group;
  }
}

}  // namespace
}  // namespace polysil::kernels

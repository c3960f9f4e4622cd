// Attention over one chunk of positions, as a template over Lanes for every instruction set;
// internal linkage, as in lanes.h. A chunk is aligned to absolute positions, and every score and
// every output is one chain of multiply-adds in a fixed order, so what is computed for one query
// depends only on its position: never on the other queries of the call, the rows of the step, or
// the size of a KV block.
//
// Scores: lanes are positions; the chain runs over the head's elements. Keys lie that way in
// memory, eight positions together. Sums of values: lanes are elements; the chain runs over the
// positions.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_kernels.h"

namespace polysil::kernels {
namespace {

constexpr float kNothingSeen = -__builtin_inff();
// Positions whose values stay in the first-level cache while all queries add them.
constexpr int32_t kStripPositions = 64;
// A tile has so many sixteens of sums in registers: queries by sixteens of positions or elements.
constexpr int kTileSixteens = kRegisterFloats == 16 ? 12 : 6;

// Keys or values as they lie in memory.
struct Halves {
  using Element = uint16_t;
  [[gnu::always_inline]] static Sixteen Load(const uint16_t* from) { return LoadHalves<16>(from); }
  // Lanes 0..7 and lanes 8..15.
  [[gnu::always_inline]] static Sixteen Load(const uint16_t* low, const uint16_t* high) {
    Sixteen lanes;
#if defined(__AVX512F__)
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
    lanes.part[0] = _mm512_cvtph_ps(_mm256_set_m128i(second, first));
#elif defined(__F16C__)
    lanes.part[0] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
    lanes.part[1] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high)));
#else
    float values[16];
    for (int i = 0; i < 8; ++i) values[i] = HalfToFloat(low[i]);
    for (int i = 0; i < 8; ++i) values[i + 8] = HalfToFloat(high[i]);
    lanes = Sixteen::Load(values);
#endif
    return lanes;
  }
  static float Widen(uint16_t element) {
    return HalfToFloat(element);
  }
};
struct Singles {
  using Element = float;
  [[gnu::always_inline]] static Sixteen Load(const float* from) { return Sixteen::Load(from); }
  [[gnu::always_inline]] static Sixteen Load(const float* low, const float* high) {
    float values[16];
    std::memcpy(values, low, 8 * sizeof(float));
    std::memcpy(values + 8, high, 8 * sizeof(float));
    return Sixteen::Load(values);
  }
  static float Widen(float element) { return element; }
};

template <typename Kind>
const typename Kind::Element* GroupOf(const std::byte* const* groups, int32_t position) {
  return reinterpret_cast<const typename Kind::Element*>(
      groups[static_cast<uint32_t>(position) / kKeyGroup]);
}

// Positions of a chunk.
struct Span {
  int32_t begin;
  int32_t end;
};

// Asks for what will be read, line by line, some way ahead of the reading: blocks lie anywhere, and
// the hardware does not look beyond a page. The first tile of queries asks; the others find it all
// there, and have a NoReadAhead.
class ReadAhead {
 public:
  explicit ReadAhead(const AttentionChunk& chunk)
      : group_(chunk.reads),
        group_end_(chunk.reads + chunk.reads_count),
        group_bytes_(KvGroupBytes(chunk.type, chunk.head_size)) {
    Steps(kLinesAhead);
  }
  [[gnu::always_inline]] void Steps(int lines) {
    for (int i = 0; i < lines; ++i) {
      if (group_ == group_end_) return;
      __builtin_prefetch(*group_ + at_);
      at_ += kLineBytes;
      if (at_ < group_bytes_) continue;
      at_ = 0;
      ++group_;
    }
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  // 8 KiB: what two cores read in about three times the memory's latency.
  static constexpr int kLinesAhead = 128;

  const std::byte* const* group_;
  const std::byte* const* group_end_;
  int64_t group_bytes_;
  int64_t at_ = 0;
};

struct NoReadAhead {
  [[gnu::always_inline]] void Steps(int /*lines*/) {}
};

// scores[i][p] = scale * (q i . key p) for kQueries queries and 16 * kSixteens positions from
// `begin` on, a multiple of 16. Those of a last group that does not exist repeat the one before.
template <typename Kind, int kQueries, int kSixteens, typename Ahead>
[[gnu::always_inline]] inline void ScoreTile(const AttentionChunk& chunk, const float* q,
                                             int32_t begin, int32_t end, float* scores,
                                             Ahead& ahead) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  const typename Kind::Element* low[kSixteens];
  const typename Kind::Element* high[kSixteens];
  for (int s = 0; s < kSixteens; ++s) {
    const int32_t position = begin + 16 * s;
    low[s] = GroupOf<Kind>(chunk.keys, position);
    high[s] = position + kKeyGroup < end ? GroupOf<Kind>(chunk.keys, position + kKeyGroup) : low[s];
  }
  Sixteen sums[kQueries][kSixteens];
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) sums[i][s] = Sixteen::Broadcast(0.0F);
  }
  constexpr int kLines = kSixteens * int{sizeof(typename Kind::Element)} / 4;
  for (int32_t d = 0; d < chunk.head_size; ++d) {
    ahead.Steps(kLines > 0 ? kLines : 1);
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) {
      const Sixteen key = Kind::Load(low[s] + d * kKeyGroup, high[s] + d * kKeyGroup);
#pragma GCC unroll 12
      for (int i = 0; i < kQueries; ++i) {
        sums[i][s] = MultiplyAdd(Sixteen::Broadcast(q[i * padded + d]), key, sums[i][s]);
      }
    }
  }
  const Sixteen scale = Sixteen::Broadcast(chunk.scale);
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) {
      (sums[i][s] * scale).Store(scores + i * kAttentionChunk + begin + 16 * s);
    }
  }
}

// Positions [begin, end), begin a multiple of 16, for kQueries queries.
template <typename Kind, int kQueries, typename Ahead>
void ScoreQueries(const AttentionChunk& chunk, const float* q, int32_t begin, int32_t end,
                  float* scores, Ahead& ahead) {
  constexpr int kSixteens = kTileSixteens / kQueries;
  int32_t p = begin;
  if constexpr (kSixteens > 1) {
    for (; p + 16 * (kSixteens - 1) < end; p += 16 * kSixteens) {
      ScoreTile<Kind, kQueries, kSixteens>(chunk, q, p, end, scores, ahead);
    }
  }
  for (; p < end; p += 16) ScoreTile<Kind, kQueries, 1>(chunk, q, p, end, scores, ahead);
}

// Turns scores [begin, end) into exp(score - largest); the others of their sixteens into 0. Returns
// the largest and the sum, which runs over the chunk's sixteens from its start.
void SoftmaxChunk(float* scores, int32_t begin, int32_t end, float* largest, float* total) {
  const int32_t first = begin / 16 * 16;
  const int32_t last = (end + 15) / 16 * 16;
  for (int32_t p = first; p < begin; ++p) scores[p] = kNothingSeen;
  for (int32_t p = end; p < last; ++p) scores[p] = kNothingSeen;
  Sixteen tops = Sixteen::Broadcast(kNothingSeen);
  for (int32_t p = first; p < last; p += 16) tops = Max(Sixteen::Load(scores + p), tops);
  float lanes[16];
  tops.Store(lanes);
  float top = lanes[0];
  for (int i = 1; i < 16; ++i) top = lanes[i] > top ? lanes[i] : top;
  const Sixteen shift = Sixteen::Broadcast(top);
  Sixteen sums = Sixteen::Broadcast(0.0F);
  for (int32_t p = first; p < last; p += 16) {
    const Sixteen weight = Exp(Sixteen::Load(scores + p) - shift);
    weight.Store(scores + p);
    sums = sums + weight;
  }
  *largest = top;
  *total = Sum(sums);
}

// sums[i][d] += weight[i][p] * value p [d] over positions [begin, end) in rising order, for
// kQueries queries and kSixteens sixteens of d.
template <typename Kind, int kQueries, int kSixteens, typename Ahead>
[[gnu::always_inline]] inline void AddTile(const AttentionChunk& chunk, const float* weights,
                                           int32_t d, int32_t begin, int32_t end, float* sums,
                                           Ahead& ahead) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  Sixteen totals[kQueries][kSixteens];
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) {
      totals[i][s] = Sixteen::Load(sums + i * padded + d + 16 * s);
    }
  }
  constexpr int kLines = kSixteens * int{sizeof(typename Kind::Element)} / 4;
  const float* weight = weights + begin;
  for (int32_t p = begin; p < end;) {
    const int32_t in_group = p & (kKeyGroup - 1);
    const typename Kind::Element* row =
        GroupOf<Kind>(chunk.values, p) + in_group * chunk.head_size + d;
    const int32_t stop = p - in_group + kKeyGroup < end ? p - in_group + kKeyGroup : end;
    for (; p < stop; ++p, row += chunk.head_size, ++weight) {
      ahead.Steps(kLines > 0 ? kLines : 1);
#pragma GCC unroll 12
      for (int s = 0; s < kSixteens; ++s) {
        const Sixteen value = Kind::Load(row + 16 * s);
#pragma GCC unroll 12
        for (int i = 0; i < kQueries; ++i) {
          totals[i][s] =
              MultiplyAdd(Sixteen::Broadcast(weight[i * kAttentionChunk]), value, totals[i][s]);
        }
      }
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) totals[i][s].Store(sums + i * padded + d + 16 * s);
  }
}

// The elements behind the last whole sixteen.
template <typename Kind>
void AddRest(const AttentionChunk& chunk, const float* weights, int32_t queries, int32_t d_begin,
             int32_t begin, int32_t end, float* sums) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  for (int32_t i = 0; i < queries; ++i) {
    for (int32_t p = begin; p < end; ++p) {
      const typename Kind::Element* row =
          GroupOf<Kind>(chunk.values, p) + p % kKeyGroup * chunk.head_size;
      for (int32_t d = d_begin; d < chunk.head_size; ++d) {
        float& sum = sums[i * padded + d];
        sum = __builtin_fmaf(weights[i * kAttentionChunk + p], Kind::Widen(row[d]), sum);
      }
    }
  }
}

// Positions [begin, end) for kQueries queries that all see them.
template <typename Kind, int kQueries, typename Ahead>
void AddValues(const AttentionChunk& chunk, const float* weights, int32_t begin, int32_t end,
               float* sums, Ahead& ahead) {
  if (begin >= end) return;
  constexpr int kSixteens = kTileSixteens / kQueries;
  int32_t d = 0;
  for (; d + 16 * kSixteens <= chunk.head_size; d += 16 * kSixteens) {
    AddTile<Kind, kQueries, kSixteens>(chunk, weights, d, begin, end, sums, ahead);
  }
  for (; d + 16 <= chunk.head_size; d += 16) {
    AddTile<Kind, kQueries, 1>(chunk, weights, d, begin, end, sums, ahead);
  }
  if (d < chunk.head_size) AddRest<Kind>(chunk, weights, kQueries, d, begin, end, sums);
}

// Queries [first, first + kQueries) over positions [begin, end), of which each may see a part only:
// what all see together, the rest one by one.
template <typename Kind, int kQueries, typename Ahead>
void AddSeenValues(const AttentionChunk& chunk, int32_t first, const float* scores, int32_t begin,
                   int32_t end, float* all_sums, Ahead& ahead) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  const float* weights = scores + first * kAttentionChunk;
  float* sums = all_sums + first * padded;
  const int32_t* begins = chunk.begins + first;
  const int32_t* ends = chunk.ends + first;
  int32_t common_begin = begin;
  int32_t common_end = end;
  for (int i = 0; i < kQueries; ++i) {
    common_begin = begins[i] > common_begin ? begins[i] : common_begin;
    common_end = ends[i] < common_end ? ends[i] : common_end;
  }
  // Nothing in common: all is added one by one, within these positions still.
  if (common_begin > end) common_begin = end;
  if (common_end < common_begin) common_end = common_begin;
  const auto add_alone = [&](int i, int32_t from, int32_t to) {
    AddValues<Kind, 1>(chunk, weights + i * kAttentionChunk, from > begins[i] ? from : begins[i],
                       to < ends[i] ? to : ends[i], sums + i * padded, ahead);
  };
  for (int i = 0; i < kQueries; ++i) add_alone(i, begin, common_begin);
  AddValues<Kind, kQueries>(chunk, weights, common_begin, common_end, sums, ahead);
  for (int i = 0; i < kQueries; ++i) add_alone(i, common_end, end);
}

// Calls visit(integral constant, first query, ahead) for tiles of queries: large ones, then what is
// left. The first one reads ahead.
template <typename Visit>
[[gnu::always_inline]] inline void ForQueryTiles(int32_t queries, ReadAhead& ahead,
                                                 const Visit& visit_tile) {
  NoReadAhead nothing;
  const auto visit = [&](auto size, int32_t first) {
    first == 0 ? visit_tile(size, first, ahead) : visit_tile(size, first, nothing);
  };
  int32_t i = 0;
  if constexpr (kTileSixteens == 12) {
    for (; i + 12 <= queries; i += 12) visit(std::integral_constant<int, 12>(), i);
  }
  for (; i + 6 <= queries; i += 6) visit(std::integral_constant<int, 6>(), i);
  for (; i + 3 <= queries; i += 3) visit(std::integral_constant<int, 3>(), i);
  for (; i < queries; ++i) visit(std::integral_constant<int, 1>(), i);
}

// Positions of the chunk that any query sees.
Span SeenPositions(const AttentionChunk& chunk) {
  Span span = {kAttentionChunk, 0};
  for (int32_t i = 0; i < chunk.queries; ++i) {
    span.begin = chunk.begins[i] < span.begin ? chunk.begins[i] : span.begin;
    span.end = chunk.ends[i] > span.end ? chunk.ends[i] : span.end;
  }
  return span;
}

// Query i's scores into weights; returns the positions that it sees. Its sums become zero.
Span SoftmaxQuery(const AttentionChunk& chunk, int32_t i, float* scores,
                  const AttentionPartials& partials) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  std::memset(partials.sums + i * padded, 0, static_cast<size_t>(padded) * sizeof(float));
  partials.largest[i] = kNothingSeen;
  partials.totals[i] = 0.0F;
  const Span seen = {chunk.begins[i], chunk.ends[i]};
  if (seen.begin >= seen.end) return {0, 0};
  if (chunk.softcap > 0.0F) SoftCapRow(scores + seen.begin, chunk.softcap, seen.end - seen.begin);
  SoftmaxChunk(scores, seen.begin, seen.end, partials.largest + i, partials.totals + i);
  return seen;
}

template <typename Kind>
void AttendChunkOf(const AttentionChunk& chunk, float* scores, const AttentionPartials& partials) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  const Span span = SeenPositions(chunk);
  const int32_t first = span.begin / 16 * 16;
  ReadAhead ahead(chunk);
  ForQueryTiles(chunk.queries, ahead, [&](auto queries, int32_t i, auto& asks) {
    ScoreQueries<Kind, queries>(chunk, chunk.q + i * padded, first, span.end,
                                scores + i * kAttentionChunk, asks);
  });
  for (int32_t i = 0; i < chunk.queries; ++i) {
    SoftmaxQuery(chunk, i, scores + i * kAttentionChunk, partials);
  }
  for (int32_t begin = span.begin; begin < span.end; begin += kStripPositions) {
    const int32_t end = begin + kStripPositions < span.end ? begin + kStripPositions : span.end;
    ForQueryTiles(chunk.queries, ahead, [&](auto queries, int32_t i, auto& asks) {
      AddSeenValues<Kind, queries>(chunk, i, scores, begin, end, partials.sums, asks);
    });
  }
}

float ExpOf(float x) {
  float lanes[16];
  Exp(Sixteen::Broadcast(x)).Store(lanes);
  return lanes[0];
}

// Joins the partials of the next chunk to those of all chunks before it.
void MergePartials(int32_t queries, int32_t head_size, const AttentionPartials& next,
                   const AttentionPartials& all) {
  const int32_t padded = PaddedHeadSize(head_size);
  for (int32_t i = 0; i < queries; ++i) {
    if (next.totals[i] == 0.0F) continue;  // the query sees nothing of the chunk
    float* sums = all.sums + i * padded;
    const float* next_sums = next.sums + i * padded;
    if (all.totals[i] == 0.0F) {  // the first chunk that it sees
      all.largest[i] = next.largest[i];
      all.totals[i] = next.totals[i];
      std::memcpy(sums, next_sums, static_cast<size_t>(padded) * sizeof(float));
      continue;
    }
    const float top = next.largest[i] > all.largest[i] ? next.largest[i] : all.largest[i];
    const float keep = ExpOf(all.largest[i] - top);
    const float join = ExpOf(next.largest[i] - top);
    all.largest[i] = top;
    all.totals[i] = all.totals[i] * keep + next.totals[i] * join;
    for (int32_t d = 0; d < padded; d += 16) {
      const Sixteen kept = Sixteen::Load(sums + d) * Sixteen::Broadcast(keep);
      const Sixteen joined = Sixteen::Load(next_sums + d) * Sixteen::Broadcast(join);
      (kept + joined).Store(sums + d);
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

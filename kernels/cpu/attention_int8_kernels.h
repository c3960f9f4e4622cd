// Attention over one chunk of positions whose keys and values are 8-bit integers with a scale for
// each token; a part of attention_kernels.h, with internal linkage as there.
//
// Queries, and the weights of the values, become 16-bit integers for a chunk, each with a scale;
// products then add up exactly, so their order is of no matter: 256 positions or elements of at
// most 127 * 32767 stay within 32 bits. A number that is none makes the scale none, and so the
// result.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/quantise_kernels.h"

namespace polysil::kernels {
namespace {

constexpr float kPairLargest = 32767.0F;
// Below this all is taken for zero: a factor of 32767 divided by it is still a number.
constexpr float kSmallestScaled = 1e-30F;
// More elements of a head would not fit a sum.
static_assert(int64_t{kInt8HeadSizeMax} * 127 * 32767 < INT32_MAX);
static_assert(int64_t{kAttentionChunk} * 127 * 32767 < INT32_MAX);

// Neighbouring 16-bit integers, two for each 32-bit lane.
typedef int16_t PairRegister __attribute__((vector_size(kRegisterFloats * 4)));
struct SixteenPairs {
  PairRegister part[Sixteen::kParts];
};

// 2 * kRegisterFloats bytes, widened.
[[gnu::always_inline]] inline PairRegister LoadPairs(const int8_t* from) {
#if defined(__AVX512BW__)
  return reinterpret_cast<PairRegister>(
      _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<PairRegister>(
      _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  typedef int8_t Bytes __attribute__((vector_size(2 * kRegisterFloats), aligned(1), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Bytes*>(from), PairRegister);
#endif
}

// 32 bytes that lie together, and twice 16.
[[gnu::always_inline]] inline SixteenPairs LoadSixteenPairs(const int8_t* from) {
  SixteenPairs pairs;
  for (int p = 0; p < Sixteen::kParts; ++p) {
    pairs.part[p] = LoadPairs(from + p * 2 * kRegisterFloats);
  }
  return pairs;
}
[[gnu::always_inline]] inline SixteenPairs LoadSixteenPairs(const int8_t* low, const int8_t* high) {
#if defined(__AVX512BW__)
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
  return {{reinterpret_cast<PairRegister>(_mm512_cvtepi8_epi16(_mm256_set_m128i(second, first)))}};
#elif defined(__AVX2__)
  return {{LoadPairs(low), LoadPairs(high)}};
#else
  int8_t both[32];
  std::memcpy(both, low, 16);
  std::memcpy(both + 16, high, 16);
  return LoadSixteenPairs(both);
#endif
}

// The same pair in every lane.
[[gnu::always_inline]] inline PairRegister BroadcastPair(const int16_t* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof(both));
  return reinterpret_cast<PairRegister>(both - IntRegister{});
}

// sums[i] += a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1].
[[gnu::always_inline]] inline IntRegister AddPairProducts(PairRegister a, PairRegister b,
                                                          IntRegister sums) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<IntRegister>(_mm512_dpwssd_epi32(
      reinterpret_cast<__m512i>(sums), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return sums + reinterpret_cast<IntRegister>(
                    _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  for (int i = 0; i < kRegisterFloats; ++i) {
    sums[i] += int32_t{a[2 * i]} * b[2 * i] + int32_t{a[2 * i + 1]} * b[2 * i + 1];
  }
  return sums;
#endif
}
[[gnu::always_inline]] inline void AddPairProducts(const SixteenPairs& a, PairRegister b,
                                                   SixteenInts& sums) {
  for (int p = 0; p < Sixteen::kParts; ++p) {
    sums.part[p] = AddPairProducts(a.part[p], b, sums.part[p]);
  }
}

[[gnu::always_inline]] inline Sixteen ToFloats(const SixteenInts& ints) {
  Sixteen lanes;
  for (int p = 0; p < Sixteen::kParts; ++p) {
    lanes.part[p] = __builtin_convertvector(ints.part[p], FloatRegister);
  }
  return lanes;
}

// The largest of `count` magnitudes, a multiple of 16; no number if one of them is not finite.
float LargestOf(const float* x, int32_t count) {
  Sixteen tops = Sixteen::Broadcast(0.0F);
  Sixteen nothing = Sixteen::Broadcast(0.0F);
  for (int32_t i = 0; i < count; i += 16) {
    const Sixteen value = Sixteen::Load(x + i);
    tops = Max(Abs(value), tops);
    nothing = nothing + value * Sixteen::Broadcast(0.0F);
  }
  float lanes[16];
  tops.Store(lanes);
  float top = lanes[0];
  for (int i = 1; i < 16; ++i) top = lanes[i] > top ? lanes[i] : top;
  return top + Sum(nothing);
}

// x as 16-bit integers; returns their scale. `count` is a multiple of 16.
float RoundToPairs(const float* x, int32_t count, int16_t* to) {
  const float largest = LargestOf(x, count);
  const bool some = largest > kSmallestScaled;
  const float factor = some ? kPairLargest / largest : 0.0F;
  if (!some) {
    std::memset(to, 0, static_cast<size_t>(count) * sizeof(int16_t));
    return largest != largest ? largest : 0.0F;
  }
  for (int32_t i = 0; i < count; i += 16) StoreInts(RoundSixteen(x + i, factor), to + i);
  return largest / kPairLargest;
}

// One key or value as 8-bit integers; returns their scale: no number if one of them is none.
float QuantiseKv(const float* x, int32_t head_size, int8_t* to) {
  float padded[kInt8HeadSizeMax] = {};
  std::memcpy(padded, x, static_cast<size_t>(head_size) * sizeof(float));
  const int32_t count = PaddedHeadSize(head_size);
  const float largest = LargestOf(padded, count);
  const bool some = largest > kSmallestScaled;
  const float factor = some ? kInt8Largest / largest : 0.0F;
  int8_t rounded[kInt8HeadSizeMax] = {};
  for (int32_t i = 0; some && i < count; i += 16) {
    StoreInts(RoundSixteen(padded + i, factor), rounded + i);
  }
  std::memcpy(to, rounded, static_cast<size_t>(head_size));
  if (some) return largest / kInt8Largest;
  return largest != largest ? largest : 0.0F;
}

const int8_t* Int8Group(const std::byte* const* groups, int32_t position) {
  return reinterpret_cast<const int8_t*>(groups[static_cast<uint32_t>(position) / kKeyGroup]);
}

// The scales of a group lie behind its integers.
void CopyScales(const int8_t* group, int32_t head_size, float* to) {
  std::memcpy(to, group + kKeyGroup * head_size, kKeyGroup * sizeof(float));
}

// scores[i][p] = scale i * scale p * (q i . key p) for kQueries queries and 16 * kSixteens
// positions; see ScoreTile.
template <int kQueries, int kSixteens, typename Ahead>
[[gnu::always_inline]] inline void ScoreInt8Tile(const AttentionChunk& chunk, const int16_t* q,
                                                 const float* q_scales, int32_t begin, int32_t end,
                                                 float* scores, Ahead& ahead) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  const int8_t* low[kSixteens];
  const int8_t* high[kSixteens];
  for (int s = 0; s < kSixteens; ++s) {
    const int32_t position = begin + 16 * s;
    low[s] = Int8Group(chunk.keys, position);
    high[s] = position + kKeyGroup < end ? Int8Group(chunk.keys, position + kKeyGroup) : low[s];
  }
  SixteenInts sums[kQueries][kSixteens] = {};
  for (int32_t d = 0; d < chunk.head_size; d += 2) {
    ahead.Steps((kSixteens + 1) / 2);
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) {
      const SixteenPairs key = LoadSixteenPairs(low[s] + d * kKeyGroup, high[s] + d * kKeyGroup);
#pragma GCC unroll 12
      for (int i = 0; i < kQueries; ++i) {
        AddPairProducts(key, BroadcastPair(q + i * padded + d), sums[i][s]);
      }
    }
  }
#pragma GCC unroll 12
  for (int s = 0; s < kSixteens; ++s) {
    float key_scales[16];
    CopyScales(low[s], chunk.head_size, key_scales);
    CopyScales(high[s], chunk.head_size, key_scales + kKeyGroup);
    const Sixteen key_scale = Sixteen::Load(key_scales);
#pragma GCC unroll 12
    for (int i = 0; i < kQueries; ++i) {
      const Sixteen scale = Sixteen::Broadcast(q_scales[i] * chunk.scale);
      (ToFloats(sums[i][s]) * key_scale * scale)
          .Store(scores + i * kAttentionChunk + begin + 16 * s);
    }
  }
}

template <int kQueries, typename Ahead>
void ScoreInt8Queries(const AttentionChunk& chunk, const int16_t* q, const float* q_scales,
                      int32_t begin, int32_t end, float* scores, Ahead& ahead) {
  constexpr int kSixteens = kTileSixteens / kQueries;
  int32_t p = begin;
  if constexpr (kSixteens > 1) {
    for (; p + 16 * (kSixteens - 1) < end; p += 16 * kSixteens) {
      ScoreInt8Tile<kQueries, kSixteens>(chunk, q, q_scales, p, end, scores, ahead);
    }
  }
  for (; p < end; p += 16) {
    ScoreInt8Tile<kQueries, 1>(chunk, q, q_scales, p, end, scores, ahead);
  }
}

// Weights of positions [begin, end) times the scales of their values, as 16-bit integers over the
// sixteens of `span`, zero where nothing is seen. Returns their scale. `weights` is used up.
float RoundWeights(float* weights, const float* value_scales, Span seen, Span span, int16_t* to) {
  const int32_t first = span.begin / 16 * 16;
  const int32_t last = (span.end + 15) / 16 * 16;
  const auto zero = [&](int32_t from, int32_t stop) {
    for (int32_t p = from; p < stop; ++p) weights[p] = 0.0F;
  };
  for (int32_t p = seen.begin / 16 * 16; p < seen.end; p += 16) {
    (Sixteen::Load(weights + p) * Sixteen::Load(value_scales + p)).Store(weights + p);
  }
  zero(first, seen.begin);
  zero(seen.end, last);
  return RoundToPairs(weights + first, last - first, to + first);
}

// sums[i][d] = scale i * sum of weight[i][p] * value p [d] over whole groups of positions, for
// kQueries queries and kSixteens sixteens of d. The last sixteen may reach behind the head's
// elements, never behind the group's scales.
template <int kQueries, int kSixteens, typename Ahead>
[[gnu::always_inline]] inline void AddInt8Tile(const AttentionChunk& chunk, const int16_t* weights,
                                               const float* scales, int32_t d, Span groups,
                                               float* sums, Ahead& ahead) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  SixteenInts totals[kQueries][kSixteens] = {};
  for (int32_t p = groups.begin; p < groups.end; p += 2) {
    const int8_t* pair = Int8Group(chunk.values, p) + p % kKeyGroup * chunk.head_size + 2 * d;
    ahead.Steps((kSixteens + 1) / 2);
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) {
      const SixteenPairs value = LoadSixteenPairs(pair + 32 * s);
#pragma GCC unroll 12
      for (int i = 0; i < kQueries; ++i) {
        AddPairProducts(value, BroadcastPair(weights + i * kAttentionChunk + p), totals[i][s]);
      }
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kQueries; ++i) {
    const Sixteen scale = Sixteen::Broadcast(scales[i]);
#pragma GCC unroll 12
    for (int s = 0; s < kSixteens; ++s) {
      (ToFloats(totals[i][s]) * scale).Store(sums + i * padded + d + 16 * s);
    }
  }
}

template <int kQueries, typename Ahead>
void AddInt8Values(const AttentionChunk& chunk, const int16_t* weights, const float* scales,
                   Span groups, float* sums, Ahead& ahead) {
  constexpr int kSixteens = kTileSixteens / kQueries;
  int32_t d = 0;
  for (; d + 16 * kSixteens <= chunk.head_size; d += 16 * kSixteens) {
    AddInt8Tile<kQueries, kSixteens>(chunk, weights, scales, d, groups, sums, ahead);
  }
  for (; d < chunk.head_size; d += 16) {
    AddInt8Tile<kQueries, 1>(chunk, weights, scales, d, groups, sums, ahead);
  }
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  for (int i = 0; i < kQueries; ++i) {
    for (d = chunk.head_size; d < padded; ++d) sums[i * padded + d] = 0.0F;
  }
}

// As AttendChunkOf. scratch: scores, then the scales of values and of queries, and 16-bit integers.
void AttendInt8Chunk(const AttentionChunk& chunk, float* scores,
                     const AttentionPartials& partials) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  const Span span = SeenPositions(chunk);
  const int32_t first = span.begin / 16 * 16;
  float* value_scales = scores + chunk.queries * kAttentionChunk;
  float* scales = value_scales + kAttentionChunk;
  auto* weights = reinterpret_cast<int16_t*>(scales + (chunk.queries + 15) / 16 * 16);
  int16_t* q = weights + chunk.queries * kAttentionChunk;
  if (span.begin >= span.end) {
    for (int32_t i = 0; i < chunk.queries; ++i) SoftmaxQuery(chunk, i, scores, partials);
    return;
  }
  ReadAhead ahead(chunk);
  for (int32_t i = 0; i < chunk.queries; ++i) {
    scales[i] = RoundToPairs(chunk.q + i * padded, padded, q + i * padded);
  }
  ForQueryTiles(chunk.queries, ahead, [&](auto queries, int32_t i, auto& asks) {
    ScoreInt8Queries<queries>(chunk, q + i * padded, scales + i, first, span.end,
                              scores + i * kAttentionChunk, asks);
  });
  const Span groups = {first, (span.end + kKeyGroup - 1) / kKeyGroup * kKeyGroup};
  for (int32_t p = groups.begin; p < groups.end; p += kKeyGroup) {
    CopyScales(Int8Group(chunk.values, p), chunk.head_size, value_scales + p);
  }
  for (int32_t i = 0; i < chunk.queries; ++i) {
    float* row = scores + i * kAttentionChunk;
    const Span seen = SoftmaxQuery(chunk, i, row, partials);
    scales[i] = RoundWeights(row, value_scales, seen, span, weights + i * kAttentionChunk);
  }
  ForQueryTiles(chunk.queries, ahead, [&](auto queries, int32_t i, auto& asks) {
    AddInt8Values<queries>(chunk, weights + i * kAttentionChunk, scales + i, groups,
                           partials.sums + i * padded, asks);
  });
}

void AttendChunk(const AttentionChunk& chunk, float* scratch, const AttentionPartials& partials) {
  switch (chunk.type) {
    case KvType::kFloat:
      return AttendChunkOf<Singles>(chunk, scratch, partials);
    case KvType::kHalf:
      return AttendChunkOf<Halves>(chunk, scratch, partials);
    case KvType::kInt8:
      return AttendInt8Chunk(chunk, scratch, partials);
  }
}

}  // namespace
}  // namespace polysil::kernels

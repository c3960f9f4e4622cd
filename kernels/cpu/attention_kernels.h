// Attention over one chunk of positions, as a template over Lanes for every instruction set;
// internal linkage, as in lanes.h. A chunk is aligned to absolute positions, so what is computed
// for one query depends only on its position: never on the other queries of the call, the rows of
// the step, or the size of a KV block.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/row_kernels.h"

namespace polysil::kernels {
namespace {

// Positions whose keys or values are widened to float at a time: they stay in the first-level
// cache.
constexpr int32_t kStripPositions = 32;
constexpr float kNothingSeen = -__builtin_inff();

// Row of `head_size` floats or halves to `padded` floats, zeros behind.
[[gnu::always_inline]] inline void WidenRow(const std::byte* from, bool halves, int32_t head_size,
                                            int32_t padded, float* to) {
  int32_t i = 0;
  if (halves) {
    const auto* row = reinterpret_cast<const uint16_t*>(from);
    for (; i + 16 <= head_size; i += 16) LoadHalves<16>(row + i).Store(to + i);
    for (; i < head_size; ++i) to[i] = HalfToFloat(row[i]);
  } else {
    std::memcpy(to, from, static_cast<size_t>(head_size) * sizeof(float));
    i = head_size;
  }
  for (; i < padded; ++i) to[i] = 0.0F;
}

// Asks for the rows of positions [begin, end): blocks lie anywhere, and the hardware cannot guess
// them.
void PrefetchRows(const AttentionChunk& chunk, const std::byte* const* rows, int32_t begin,
                  int32_t end) {
  const int64_t row_bytes = int64_t{chunk.head_size} * (chunk.halves ? 2 : 4);
  for (int32_t p = begin; p < end; ++p) {
    for (int64_t at = 0; at < row_bytes; at += 64) __builtin_prefetch(rows[p] + at);
  }
}

void WidenStrip(const AttentionChunk& chunk, const std::byte* const* rows, int32_t begin,
                int32_t end, float* strip) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  for (int32_t p = begin; p < end; ++p) {
    WidenRow(rows[p], chunk.halves, chunk.head_size, padded, strip + (p - begin) * padded);
  }
}

// q . keys of kKeys positions that follow each other in the strip.
template <int kKeys>
[[gnu::always_inline]] inline void Dots(const float* q, const float* keys, int32_t padded,
                                        Sixteen* dots) {
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) dots[i] = Sixteen::Load(q) * Sixteen::Load(keys + i * padded);
  for (int32_t d = 16; d < padded; d += 16) {
    const Sixteen part = Sixteen::Load(q + d);
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) {
      dots[i] = dots[i] + part * Sixteen::Load(keys + i * padded + d);
    }
  }
}

// scores[p] = scale * (q . key p), capped, for positions [begin, end) of the strip that the query
// sees.
void ScoreStrip(const AttentionChunk& chunk, const float* q, const float* strip,
                int32_t strip_begin, int32_t begin, int32_t end, float* scores) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  const float* keys = strip + (begin - strip_begin) * padded;
  int32_t p = begin;
  for (; p + 4 <= end; p += 4, keys += 4 * padded) {
    Sixteen dots[4];
    Dots<4>(q, keys, padded, dots);
    *reinterpret_cast<FourFloats*>(scores + p) = SumFour(dots) * chunk.scale;
  }
  for (; p < end; ++p, keys += padded) {
    Sixteen dot;
    Dots<1>(q, keys, padded, &dot);
    scores[p] = Sum(dot) * chunk.scale;
  }
  if (chunk.softcap > 0.0F) SoftCapRow(scores + begin, chunk.softcap, end - begin);
}

// Turns scores [begin, end) into exp(score - largest); the others of the chunk into 0. Returns the
// largest and the sum, which runs over the chunk's sixteens from its start.
void SoftmaxChunk(float* scores, int32_t begin, int32_t end, float* largest, float* total) {
  float top = scores[begin];
  for (int32_t p = begin + 1; p < end; ++p) top = scores[p] > top ? scores[p] : top;
  const int32_t first = begin / 16 * 16;
  const int32_t last = (end + 15) / 16 * 16;
  for (int32_t p = first; p < begin; ++p) scores[p] = kNothingSeen;
  for (int32_t p = end; p < last; ++p) scores[p] = kNothingSeen;
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

// sums[d] += weight[p] * value p [d] over positions [begin, end) in rising order, kParts sixteens
// of d.
template <int kSixteens>
[[gnu::always_inline]] inline void AddValues(const float* weights, const float* strip,
                                             int32_t padded, int32_t strip_begin, int32_t begin,
                                             int32_t end, float* sums) {
  Sixteen total[kSixteens];
  for (int i = 0; i < kSixteens; ++i) total[i] = Sixteen::Load(sums + i * 16);
  for (int32_t p = begin; p < end; ++p) {
    const float* value = strip + (p - strip_begin) * padded;
    const Sixteen weight = Sixteen::Broadcast(weights[p]);
    for (int i = 0; i < kSixteens; ++i) {
      total[i] = total[i] + weight * Sixteen::Load(value + i * 16);
    }
  }
  for (int i = 0; i < kSixteens; ++i) total[i].Store(sums + i * 16);
}

void AddValueStrip(const float* weights, const float* strip, int32_t padded, int32_t strip_begin,
                   int32_t begin, int32_t end, float* sums) {
  int32_t d = 0;
  for (; d + 64 <= padded; d += 64) {
    AddValues<4>(weights, strip + d, padded, strip_begin, begin, end, sums + d);
  }
  for (; d < padded; d += 16) {
    AddValues<1>(weights, strip + d, padded, strip_begin, begin, end, sums + d);
  }
}

// Positions of the chunk that any query sees.
struct Span {
  int32_t begin;
  int32_t end;
};
Span SeenPositions(const AttentionChunk& chunk) {
  Span span = {kAttentionChunk, 0};
  for (int32_t i = 0; i < chunk.queries; ++i) {
    span.begin = chunk.begins[i] < span.begin ? chunk.begins[i] : span.begin;
    span.end = chunk.ends[i] > span.end ? chunk.ends[i] : span.end;
  }
  return span;
}

void AttendChunk(const AttentionChunk& chunk, float* scratch, const AttentionPartials& partials) {
  const int32_t padded = PaddedHeadSize(chunk.head_size);
  float* strip = scratch;
  float* scores = scratch + kStripPositions * padded;  // [queries, kAttentionChunk]
  const Span span = SeenPositions(chunk);
  // Few queries leave little to do between two strips: short ones keep memory busy all the time.
  const int32_t positions = chunk.queries <= 4 ? kStripPositions / 4 : kStripPositions;
  const auto strip_end = [&](int32_t begin) {
    return begin + positions < span.end ? begin + positions : span.end;
  };
  const auto for_strips = [&](const std::byte* const* rows, const auto& visit) {
    for (int32_t begin = span.begin; begin < span.end; begin += positions) {
      const int32_t end = strip_end(begin);
      if (end < span.end) {
        PrefetchRows(chunk, rows, end, strip_end(end));
      } else if (rows == chunk.keys) {
        PrefetchRows(chunk, chunk.values, span.begin, strip_end(span.begin));
      }
      WidenStrip(chunk, rows, begin, end, strip);
      for (int32_t i = 0; i < chunk.queries; ++i) {
        const int32_t seen_begin = chunk.begins[i] > begin ? chunk.begins[i] : begin;
        const int32_t seen_end = chunk.ends[i] < end ? chunk.ends[i] : end;
        if (seen_begin < seen_end) visit(i, begin, seen_begin, seen_end);
      }
    }
  };
  PrefetchRows(chunk, chunk.keys, span.begin, strip_end(span.begin));
  for_strips(chunk.keys, [&](int32_t i, int32_t strip_begin, int32_t begin, int32_t end) {
    ScoreStrip(chunk, chunk.q + i * padded, strip, strip_begin, begin, end,
               scores + i * kAttentionChunk);
  });
  for (int32_t i = 0; i < chunk.queries; ++i) {
    std::memset(partials.sums + i * padded, 0, static_cast<size_t>(padded) * sizeof(float));
    partials.largest[i] = kNothingSeen;
    partials.totals[i] = 0.0F;
    if (chunk.begins[i] >= chunk.ends[i]) continue;
    SoftmaxChunk(scores + i * kAttentionChunk, chunk.begins[i], chunk.ends[i], partials.largest + i,
                 partials.totals + i);
  }
  for_strips(chunk.values, [&](int32_t i, int32_t strip_begin, int32_t begin, int32_t end) {
    AddValueStrip(scores + i * kAttentionChunk, strip, padded, strip_begin, begin, end,
                  partials.sums + i * padded);
  });
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

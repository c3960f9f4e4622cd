// The CPU's fast path: one table of kernels per instruction set, chosen at run time. All of them
// give the same bits for the same inputs: integer sums are exact, and floats are added in one fixed
// order per output element, whatever the number of rows in a call or the width of a register.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_type.h"

namespace polysil::kernels {

enum class Isa { kPortable, kAvx2, kAvx512 };

// --- Activations ---------------------------------------------------------------------------------

// How a panel wants x.
enum class ActivationType {
  kFloat,
  // 8 bits per value and one scale per block of 32. Values that stand out from the row
  // (kOutlierFactor) are kept apart as they are: next to them the others would be rounded to steps
  // that make most of the error.
  kInt8,
  // 16 bits per value and one scale per block of 32.
  kInt16,
};
inline constexpr int32_t kActivationBlock = 32;

// A value is an outlier when its magnitude is above this many times the row's root mean square and
// it is one of the kBlockOutliersMax largest of its block. On SmolLM2-135M Q4_1 every sixth block
// has one; without outliers the mean error of a log-probability is more than twice as large.
inline constexpr float kOutlierFactor = 4.0F;
inline constexpr int32_t kBlockOutliersMax = 3;

// Facts of one block of a quantised row. A value is scale * q with whole q.
struct ActivationFacts {
  float scale;
  float scaled_sum;   // scale * sum
  int32_t sum;        // of all 32 q
  int32_t first_sum;  // of the first 16 q
};

// Outliers are zero here.
struct alignas(16) Int8Block {
  int8_t values[kActivationBlock];
  ActivationFacts facts;
};

struct ActivationOutlier {
  uint32_t column;
  float x;
};
// The most that a row can have.
constexpr int64_t RowOutliersMax(int64_t cols) {
  return cols / kActivationBlock * kBlockOutliersMax;
}

struct Int16Block {
  int16_t wholes[kActivationBlock];
  ActivationFacts facts;
};

// Rows of x in one form: [rows, cols] floats or [rows, cols / 32] blocks; those of 8 bits with
// [rows, RowOutliersMax(cols)] outliers, of which outlier_counts[row] are there.
struct Activations {
  int64_t cols = 0;
  const float* floats = nullptr;
  const Int8Block* int8_blocks = nullptr;
  const ActivationOutlier* outliers = nullptr;
  const int32_t* outlier_counts = nullptr;
  const Int16Block* int16_blocks = nullptr;
};

// --- Weight panels -------------------------------------------------------------------------------

// Rows of y that a product writes: row r of the call at out + r * stride.
struct PanelOutput {
  float* out;  // the panel's first output of row 0
  int64_t stride;
  int32_t lanes;      // outputs of the panel that exist
  const float* bias;  // [lanes] or null
  bool accumulate;    // add to what is there
};

// A weight matrix is kept as panels of `panel_rows` rows, interleaved so that lane = row. One
// format for each way to store a panel.
struct PanelFormat {
  ActivationType activation;
  // Bytes of one panel: a multiple of 64 for cols that are a multiple of 32.
  int64_t (*panel_bytes)(int64_t cols);
  // Packs `rows` <= panel_rows rows, `row_bytes` apart; missing rows become zero.
  void (*pack)(WeightType type, const std::byte* from, int64_t row_bytes, int32_t rows,
               int64_t cols, std::byte* panel);
  // out[r, lane] = panel row `lane` . x row r (+ bias) (+ what was there) for `rows` rows of x.
  void (*multiply)(const std::byte* panel, const Activations& x, int64_t row_begin, int64_t rows,
                   const PanelOutput& output);
};

// --- Attention -----------------------------------------------------------------------------------

// Positions of one chunk; chunk c covers [c * kAttentionChunk, (c + 1) * kAttentionChunk).
inline constexpr int32_t kAttentionChunk = 256;

// Keys of so many positions lie together, as [head_size, kKeyGroup]: one load brings an element of
// all of them. A block holds whole groups.
inline constexpr int32_t kKeyGroup = 8;

// Most elements of a head whose keys and values are kInt8.
inline constexpr int32_t kInt8HeadSizeMax = 512;

// How keys and values are kept.
enum class KvType {
  kFloat,
  kHalf,
  kInt8,  // with a float scale for each token, behind the elements of its group
};

// Of kKeyGroup tokens.
constexpr int64_t KvGroupBytes(KvType type, int32_t head_size) {
  const int64_t elements = int64_t{kKeyGroup} * head_size;
  switch (type) {
    case KvType::kFloat:
      return elements * 4;
    case KvType::kHalf:
      return elements * 2;
    case KvType::kInt8:
      return elements + kKeyGroup * 4;
  }
  return 0;
}

// Rows of queries and sums are padded with zeros to whole sixteens.
constexpr int32_t PaddedHeadSize(int32_t head_size) {
  return (head_size + 15) / 16 * 16;
}

// Some queries of one KV head against the positions of one chunk.
struct AttentionChunk {
  int32_t queries;
  int32_t head_size;
  KvType type;
  float scale;
  float softcap;          // 0: none
  const float* q;         // [queries, padded head size]
  const int32_t* begins;  // query i sees positions [begins[i], ends[i]) of the chunk
  const int32_t* ends;
  // By group of positions of the chunk: keys [head_size, kKeyGroup], values [kKeyGroup, head_size].
  // Of kInt8, two neighbours lie together: keys [head_size / 2, kKeyGroup, 2], values
  // [kKeyGroup / 2, head_size, 2]; heads are of even size.
  // From the sixteen of the first position that is seen to the last that is; what lies beyond a
  // query's positions may be anything.
  const std::byte* const* keys;
  const std::byte* const* values;
  // Groups in the order in which they are read here, and the first of those that come next; asked
  // for ahead of time. May be none.
  const std::byte* const* reads;
  int32_t reads_count;
};

// exp-weighted sums of values relative to the largest score, for each query.
struct AttentionPartials {
  float* largest;  // [queries]
  float* totals;   // [queries], 0 where nothing was seen
  float* sums;     // [queries, padded head size]
};

// Floats of scratch that attend_chunk needs.
int64_t AttentionScratchFloats(int32_t queries, int32_t head_size);

// --- The table -----------------------------------------------------------------------------------

struct CpuKernels {
  Isa isa;
  int32_t panel_rows;
  // exact: products with float activations and the exact values of the weights.
  const PanelFormat& (*format)(WeightType type, bool exact);

  // One row; cols is a multiple of 32. A row that is not finite becomes one that gives no number.
  // Outliers are written by rising column; returns how many.
  int32_t (*quantise_int8)(const float* x, int64_t cols, Int8Block* blocks,
                           ActivationOutlier* outliers);
  void (*quantise_int16)(const float* x, int64_t cols, Int16Block* blocks);

  void (*rms_norm)(const float* x, const float* weight, float weight_offset, float eps,
                   int64_t cols, float* out);
  void (*gated_silu)(const float* gate, const float* up, int64_t count, float* out);
  void (*gated_gelu_tanh)(const float* gate, const float* up, int64_t count, float* out);
  void (*softcap)(float* x, float cap, int64_t count);
  void (*add)(float* x, const float* y, int64_t count);
  void (*scale)(float* x, float factor, int64_t count);
  // Heads of one row; cosines and sines [pairs].
  void (*rope_halves)(float* x, int32_t heads, int32_t head_size, int32_t pairs,
                      const float* cosines, const float* sines);
  void (*rope_adjacent)(float* x, int32_t heads, int32_t head_size, int32_t pairs,
                        const float* cosines, const float* sines);
  void (*floats_to_halves)(const float* from, int64_t count, uint16_t* to);

  // One key or value of an even number of elements as 8-bit integers, rounded to the nearest;
  // returns their scale, no number if an element is infinite or none.
  float (*quantise_kv)(const float* x, int32_t head_size, int8_t* to);
  void (*attend_chunk)(const AttentionChunk& chunk, float* scratch,
                       const AttentionPartials& partials);
  // Joins the next chunk's partials to those of all chunks before it (totals 0: none yet).
  void (*merge_partials)(int32_t queries, int32_t head_size, const AttentionPartials& next,
                         const AttentionPartials& all);
};

// Whether this machine runs an instruction set, and the widest that it runs.
bool Runs(Isa isa);
Isa BestIsa();
// isa is one that this machine runs.
const CpuKernels& KernelsFor(Isa isa);

}  // namespace polysil::kernels

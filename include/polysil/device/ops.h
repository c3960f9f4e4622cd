// Ops: the dozen operations a decoder needs, over device memory. CPU, CUDA and HIP implement it
// under the one Decoder. Called by the one worker thread that owns the device; an implementation
// may spread an operation over threads of its own. All activations are float, row-major, dense
// unless a stride says otherwise. A row's result never depends on the other rows of the call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "polysil/base/ids.h"
#include "polysil/core/kv_layout.h"
#include "polysil/core/model_spec.h"

namespace polysil {

// A matrix [rows, cols] as the device keeps it, perhaps repacked. y = W x maps cols to rows.
class WeightMatrix {
 public:
  virtual ~WeightMatrix() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cols() const = 0;
};

// Rows that are looked up by number, [rows, cols], as the device keeps them.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t cols() const = 0;
};

// One product of a Linear call: out[t, :] (+)= W x[t, :] + bias.
struct LinearTarget {
  const WeightMatrix* weight = nullptr;
  const float* bias = nullptr;  // [weight->rows()] or null
  float* out = nullptr;         // row t at out + t * out_stride
  int64_t out_stride = 0;
  bool accumulate = false;  // add to what is there
};

// Rows of one sequence in an attention or KV call.
struct AttentionSequence {
  int32_t row_begin = 0;  // its rows in the batch: [row_begin, row_begin + rows)
  int32_t rows = 0;
  int32_t position_begin = 0;            // position of the first of them
  std::span<const BlockId> block_table;  // covers positions [0, position_begin + rows)
};

struct KvPool {
  std::byte* base = nullptr;  // blocks * layout.block_bytes()
  int32_t blocks = 0;
  KvLayout layout;
};

struct StoreKvArgs {
  const KvPool* pool = nullptr;
  int32_t layer = 0;
  const float* k = nullptr;  // [rows, kv_heads, head_size], after rope
  const float* v = nullptr;
  std::span<const AttentionSequence> sequences;
};

struct AttentionArgs {
  const KvPool* pool = nullptr;
  int32_t layer = 0;
  int32_t q_heads = 0;
  const float* q = nullptr;  // [rows, q_heads, head_size], after rope
  float* out = nullptr;      // [rows, q_heads, head_size]
  std::span<const AttentionSequence> sequences;
  float scale = 1.0F;
  float softcap = 0.0F;  // 0: none
  int32_t window = 0;    // 0: none
};

class Ops {
 public:
  virtual ~Ops() = default;

  // out[t, :] = scale * table row ids[t]. ids are checked by the caller.
  virtual void Embed(const EmbeddingTable& table, std::span<const TokenId> ids, float scale,
                     float* out) = 0;
  // out[r, :] = x[r, :] / sqrt(mean(x[r, :]^2) + eps) * (weight + weight_offset). out may be x.
  virtual void RmsNorm(const float* x, const float* weight, float weight_offset, float eps,
                       int64_t rows, int64_t cols, float* out) = 0;
  // Every target with the same x [rows, cols].
  virtual void Linear(const float* x, int64_t rows, int64_t cols,
                      std::span<const LinearTarget> targets) = 0;
  // Turns x [rows, heads, head_size] in place; row r stands at positions[r].
  virtual void Rope(float* x, std::span<const int32_t> positions, int32_t heads, int32_t head_size,
                    const RopeSpec& rope) = 0;
  virtual void StoreKv(const StoreKvArgs& args) = 0;
  // Causal attention of each row over the positions up to its own. KV of this step is stored first.
  virtual void Attention(const AttentionArgs& args) = 0;
  // out[r, c] = activation(gate[r, c]) * up[r, c]. out may be gate.
  virtual void GatedActivation(Activation activation, const float* gate, const float* up,
                               int64_t rows, int64_t cols, float* out) = 0;
  // x[i] += y[i].
  virtual void Add(float* x, const float* y, int64_t count) = 0;
  // x[i] = cap * tanh(x[i] / cap).
  virtual void SoftCap(float* x, float cap, int64_t count) = 0;
  // out[i, :] = x[rows[i], :].
  virtual void GatherRows(const float* x, std::span<const int32_t> rows, int64_t cols,
                          float* out) = 0;
};

}  // namespace polysil

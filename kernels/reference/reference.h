// The oracle: every op of a decoder, scalar and obvious, accumulated in double. Slow; for tests
// only. Shapes and meanings are those of include/polysil/device/ops.h.
#pragma once

#include <cstdint>

namespace polysil::kernels::reference {

// out[t, r] = sum over c of weight[r, c] * x[t, c].
void MatMul(const float* weight, const float* x, int64_t weight_rows, int64_t cols, int64_t rows,
            float* out);

void RmsNorm(const float* x, const float* weight, float weight_offset, float eps, int64_t rows,
             int64_t cols, float* out);

// Turns the first `dims` of each head; adjacent: pairs (2i, 2i + 1), else (i, i + dims / 2).
struct RopeShape {
  int32_t heads;
  int32_t head_size;
  int32_t dims;
  bool adjacent;
  float magnitude;
};
void Rope(float* x, const int32_t* positions, const float* inv_freqs, int64_t rows,
          const RopeShape& shape);

// One row at `position` against keys and values [positions, kv_heads, head_size] of one sequence.
struct AttentionShape {
  int32_t q_heads;
  int32_t kv_heads;
  int32_t head_size;
  float scale;
  float softcap;   // 0: none
  int32_t window;  // 0: none
};
void Attention(const float* q, const float* keys, const float* values, int32_t position,
               const AttentionShape& shape, float* out);

void GatedSilu(const float* gate, const float* up, int64_t count, float* out);
void GatedGeluTanh(const float* gate, const float* up, int64_t count, float* out);
void SoftCap(float* x, float cap, int64_t count);

}  // namespace polysil::kernels::reference

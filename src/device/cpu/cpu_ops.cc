#include "device/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>

#include "device/cpu/cpu_matrix.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

// Floats that one thread goes through in about the time of a fork: 5 to 10 us.
constexpr int64_t kTaskFloats = 16 << 10;

}  // namespace

template <typename Body>
void CpuOps::Spread(int64_t count, int64_t floats, const Body& body) {
  // Sixteens stay whole where the elements are floats: parts must not change where padding falls.
  const int64_t step = std::max<int64_t>(1, (kTaskFloats / floats + 15) / 16 * 16);
  pool_.Run((count + step - 1) / step,
            [&](int64_t task, int32_t) { body(task * step, std::min(count, (task + 1) * step)); });
}

void CpuOps::Embed(const EmbeddingTable& table, std::span<const TokenId> ids, float scale,
                   float* out) {
  const auto& rows = static_cast<const CpuTable&>(table);
  const int64_t cols = rows.cols();
  Spread(static_cast<int64_t>(ids.size()), cols, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const TokenId id = ids[static_cast<size_t>(t)];
      CHECK(id >= 0 && id < rows.rows(), "token {} is not in a table of {}", id, rows.rows());
      rows.CopyRow(id, out + t * cols);
      if (scale != 1.0F) kernels_.scale(out + t * cols, scale, cols);
    }
  });
}

void CpuOps::RmsNorm(const float* x, const float* weight, float weight_offset, float eps,
                     int64_t rows, int64_t cols, float* out) {
  Spread(rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels_.rms_norm(x + r * cols, weight, weight_offset, eps, cols, out + r * cols);
    }
  });
}

void CpuOps::Linear(const float* x, int64_t rows, int64_t cols,
                    std::span<const LinearTarget> targets) {
  products_.Linear(x, rows, cols, targets);
}

void CpuOps::Rope(float* x, std::span<const int32_t> positions, int32_t heads, int32_t head_size,
                  const RopeSpec& rope) {
  CHECK(rope.dims <= head_size && rope.dims == 2 * static_cast<int64_t>(rope.inv_freqs.size()),
        "rope of {} dimensions with {} frequencies on heads of {}", rope.dims,
        rope.inv_freqs.size(), head_size);
  const RopeTable::Angles& angles = ropes_.Find(positions, rope);
  const auto turn =
      rope.pairing == RopePairing::kHalves ? kernels_.rope_halves : kernels_.rope_adjacent;
  const int64_t row_floats = int64_t{heads} * head_size;
  Spread(static_cast<int64_t>(positions.size()), row_floats, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      turn(x + r * row_floats, heads, head_size, angles.pairs,
           angles.cosines.data() + r * angles.pairs, angles.sines.data() + r * angles.pairs);
    }
  });
}

void CpuOps::StoreKv(const StoreKvArgs& args) {
  kv_store_.Store(args);
}

void CpuOps::Attention(const AttentionArgs& args) {
  attention_.Attend(args);
}

void CpuOps::GatedActivation(Activation activation, const float* gate, const float* up,
                             int64_t rows, int64_t cols, float* out) {
  const auto apply =
      activation == Activation::kSilu ? kernels_.gated_silu : kernels_.gated_gelu_tanh;
  // About four floats' worth each: an exponential and a division.
  Spread(rows * cols, 4, [&](int64_t begin, int64_t end) {
    apply(gate + begin, up + begin, end - begin, out + begin);
  });
}

void CpuOps::Add(float* x, const float* y, int64_t count) {
  Spread(count, 1,
         [&](int64_t begin, int64_t end) { kernels_.add(x + begin, y + begin, end - begin); });
}

void CpuOps::SoftCap(float* x, float cap, int64_t count) {
  Spread(count, 4,
         [&](int64_t begin, int64_t end) { kernels_.softcap(x + begin, cap, end - begin); });
}

void CpuOps::GatherRows(const float* x, std::span<const int32_t> rows, int64_t cols, float* out) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(out + static_cast<int64_t>(i) * cols, x + rows[i] * cols,
                static_cast<size_t>(cols) * sizeof(float));
  }
}

}  // namespace polysil

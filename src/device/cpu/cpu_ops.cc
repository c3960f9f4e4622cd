#include "device/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/half.h"
#include "kernels/reference/reference.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr int64_t kRowsPerTask = 32;

float Dot(const float* a, const float* b, int64_t count) {
  float sums[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < count; ++i, ++lane) sums[lane] += a[i] * b[i];
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

// [kv_heads, tokens_per_block, head_size] of one layer of one block.
std::byte* Plane(const KvPool& pool, BlockId block, int32_t layer, bool value) {
  return pool.base + block.value * pool.layout.block_bytes() +
         (int64_t{layer} * 2 + (value ? 1 : 0)) * pool.layout.plane_bytes();
}

float LoadElement(const std::byte* head, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(head)[index];
  return kernels::HalfToFloat(reinterpret_cast<const uint16_t*>(head)[index]);
}

void StoreElement(std::byte* head, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    reinterpret_cast<float*>(head)[index] = value;
  } else {
    reinterpret_cast<uint16_t*>(head)[index] = kernels::FloatToHalf(value);
  }
}

void GatherHead(const KvPool& pool, const AttentionSequence& sequence, int32_t layer, bool value,
                int32_t kv_head, int32_t positions, float* out) {
  const KvLayout& layout = pool.layout;
  for (int32_t p = 0; p < positions; ++p) {
    const BlockId block = sequence.block_table[static_cast<size_t>(p / layout.tokens_per_block)];
    const std::byte* head = Plane(pool, block, layer, value) + kv_head * layout.head_bytes();
    const int64_t token = p % layout.tokens_per_block;
    for (int32_t d = 0; d < layout.head_size; ++d) {
      out[int64_t{p} * layout.head_size + d] =
          LoadElement(head, layout.dtype, token * layout.head_size + d);
    }
  }
}

}  // namespace

CpuMatrix::CpuMatrix(const HostTensor& tensor, kernels::WeightType type)
    : tensor_(tensor), type_(type), values_(static_cast<size_t>(tensor.rows * tensor.cols)) {
  kernels::Dequantise(type, tensor.data, tensor.rows * tensor.cols, values_.data());
}

void CpuOps::Embed(const WeightMatrix& table, std::span<const TokenId> ids, float scale,
                   float* out) {
  const auto& matrix = static_cast<const CpuMatrix&>(table);
  const int64_t cols = matrix.cols();
  const DTypeInfo& info = Info(matrix.tensor().dtype);
  const int64_t row_bytes = cols / info.values_per_block * info.bytes_per_block;
  for (size_t t = 0; t < ids.size(); ++t) {
    float* row = out + static_cast<int64_t>(t) * cols;
    kernels::Dequantise(matrix.type(), matrix.tensor().data + ids[t] * row_bytes, cols, row);
    for (int64_t c = 0; c < cols; ++c) row[c] *= scale;
  }
}

void CpuOps::RmsNorm(const float* x, const float* weight, float weight_offset, float eps,
                     int64_t rows, int64_t cols, float* out) {
  kernels::reference::RmsNorm(x, weight, weight_offset, eps, rows, cols, out);
}

void CpuOps::Linear(const float* x, int64_t rows, int64_t cols,
                    std::span<const LinearTarget> targets) {
  for (const LinearTarget& target : targets) {
    const auto& matrix = static_cast<const CpuMatrix&>(*target.weight);
    CHECK(matrix.cols() == cols, "matrix has {} columns, x has {}", matrix.cols(), cols);
    const int64_t tasks = (matrix.rows() + kRowsPerTask - 1) / kRowsPerTask;
    pool_.Run(tasks, [&](int64_t task, int32_t) {
      const int64_t end = std::min(matrix.rows(), (task + 1) * kRowsPerTask);
      for (int64_t r = task * kRowsPerTask; r < end; ++r) {
        for (int64_t t = 0; t < rows; ++t) {
          float* out = target.out + t * target.out_stride + r;
          float sum = Dot(matrix.values() + r * cols, x + t * cols, cols);
          if (target.bias != nullptr) sum += target.bias[r];
          *out = target.accumulate ? *out + sum : sum;
        }
      }
    });
  }
}

void CpuOps::Rope(float* x, std::span<const int32_t> positions, int32_t heads, int32_t head_size,
                  const RopeSpec& rope) {
  const kernels::reference::RopeShape shape = {
      heads, head_size, rope.dims, rope.pairing == RopePairing::kAdjacent, rope.magnitude};
  kernels::reference::Rope(x, positions.data(), rope.inv_freqs.data(),
                           static_cast<int64_t>(positions.size()), shape);
}

void CpuOps::StoreKv(const StoreKvArgs& args) {
  const KvLayout& layout = args.pool->layout;
  for (const AttentionSequence& sequence : args.sequences) {
    for (int32_t row = 0; row < sequence.rows; ++row) {
      const int32_t position = sequence.position_begin + row;
      const BlockId block =
          sequence.block_table[static_cast<size_t>(position / layout.tokens_per_block)];
      for (int32_t h = 0; h < layout.kv_heads; ++h) {
        const int64_t from =
            (int64_t{sequence.row_begin + row} * layout.kv_heads + h) * layout.head_size;
        const int64_t to = int64_t{position % layout.tokens_per_block} * layout.head_size;
        std::byte* k = Plane(*args.pool, block, args.layer, false) + h * layout.head_bytes();
        std::byte* v = Plane(*args.pool, block, args.layer, true) + h * layout.head_bytes();
        for (int32_t d = 0; d < layout.head_size; ++d) {
          StoreElement(k, layout.dtype, to + d, args.k[from + d]);
          StoreElement(v, layout.dtype, to + d, args.v[from + d]);
        }
      }
    }
  }
}

void CpuOps::Attention(const AttentionArgs& args) {
  const KvLayout& layout = args.pool->layout;
  const int32_t group = args.q_heads / layout.kv_heads;
  const kernels::reference::AttentionShape shape = {
      group, 1, layout.head_size, args.scale, args.softcap, args.window};
  const auto tasks = static_cast<int64_t>(args.sequences.size()) * layout.kv_heads;
  pool_.Run(tasks, [&](int64_t task, int32_t) {
    const AttentionSequence& sequence = args.sequences[static_cast<size_t>(task / layout.kv_heads)];
    const auto kv_head = static_cast<int32_t>(task % layout.kv_heads);
    const int32_t positions = sequence.position_begin + sequence.rows;
    const auto floats = static_cast<size_t>(int64_t{positions} * layout.head_size);
    std::vector<float> keys(floats);
    std::vector<float> values(floats);
    GatherHead(*args.pool, sequence, args.layer, false, kv_head, positions, keys.data());
    GatherHead(*args.pool, sequence, args.layer, true, kv_head, positions, values.data());
    for (int32_t row = 0; row < sequence.rows; ++row) {
      const int64_t offset =
          (int64_t{sequence.row_begin + row} * args.q_heads + kv_head * group) * layout.head_size;
      kernels::reference::Attention(args.q + offset, keys.data(), values.data(),
                                    sequence.position_begin + row, shape, args.out + offset);
    }
  });
}

void CpuOps::GatedActivation(Activation activation, const float* gate, const float* up,
                             int64_t rows, int64_t cols, float* out) {
  switch (activation) {
    case Activation::kSilu:
      return kernels::reference::GatedSilu(gate, up, rows * cols, out);
    case Activation::kGeluTanh:
      return kernels::reference::GatedGeluTanh(gate, up, rows * cols, out);
  }
}

void CpuOps::Add(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

void CpuOps::SoftCap(float* x, float cap, int64_t count) {
  kernels::reference::SoftCap(x, cap, count);
}

void CpuOps::GatherRows(const float* x, std::span<const int32_t> rows, int64_t cols, float* out) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memmove(out + static_cast<int64_t>(i) * cols, x + rows[i] * cols,
                 static_cast<size_t>(cols) * sizeof(float));
  }
}

}  // namespace polysil

#include "device/cpu/cpu_products.h"

#include <algorithm>

#include "polysil/base/check.h"

namespace polysil {
namespace {

using kernels::ActivationBlock;
using kernels::Activations;
using kernels::ActivationType;
using kernels::kActivationBlock;

// A task should take longer than the fork, and there should be enough of them to even out threads
// that others disturb.
constexpr int64_t kTaskBytesMin = 16 << 10;
constexpr int64_t kTasksPerThread = 8;

// Rows of x that go over a task's panels before the next ones do: they stay in the second-level
// cache.
constexpr int64_t kRowBytesAtOnce = 192 << 10;

// Quantising one row takes about a microsecond; rows are shared out in groups.
constexpr int64_t kRowsPerTask = 8;

const CpuMatrix& MatrixOf(const LinearTarget& target) {
  return static_cast<const CpuMatrix&>(*target.weight);
}

bool AnyWants(std::span<const LinearTarget> targets, ActivationType activation) {
  return std::ranges::any_of(targets, [activation](const LinearTarget& target) {
    return MatrixOf(target).format().activation == activation;
  });
}

}  // namespace

void CpuProducts::Linear(const float* x, int64_t rows, int64_t cols,
                         std::span<const LinearTarget> targets) {
  for (const LinearTarget& target : targets) {
    CHECK(target.weight->cols() == cols, "weight has {} columns, x has {}", target.weight->cols(),
          cols);
  }
  if (rows == 0) return;
  Activations forms[3];  // by ActivationType
  forms[static_cast<int>(ActivationType::kFloat)] = {.cols = cols, .floats = x};
  if (AnyWants(targets, ActivationType::kInt8)) {
    forms[static_cast<int>(ActivationType::kInt8)] = PrepareInt8(x, rows, cols);
  }
  if (AnyWants(targets, ActivationType::kInt16)) {
    forms[static_cast<int>(ActivationType::kInt16)] = PrepareInt16(x, rows, cols);
  }
  PlanTasks(rows, targets);
  pool_.Run(static_cast<int64_t>(tasks_.size()), [&](int64_t index, int32_t) {
    const Task& task = tasks_[static_cast<size_t>(index)];
    RunTask(task, forms[static_cast<int>(task.matrix->format().activation)], rows);
  });
}

Activations CpuProducts::PrepareInt8(const float* x, int64_t rows, int64_t cols) {
  const int64_t blocks = cols / kActivationBlock;
  auto* highs = int8_values_.Grow<int8_t>(2 * rows * cols);
  int8_t* lows = highs + rows * cols;
  auto* wide = int8_wide_.Grow<uint8_t>(rows * blocks);
  auto* facts = int8_blocks_.Grow<ActivationBlock>(rows * blocks);
  pool_.Run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int32_t) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      kernels_.quantise_int8(x + r * cols, cols,
                             {.highs = highs + r * cols,
                              .lows = lows + r * cols,
                              .wide = wide + r * blocks,
                              .blocks = facts + r * blocks});
    }
  });
  return {.cols = cols, .highs = highs, .lows = lows, .wide = wide, .blocks = facts};
}

Activations CpuProducts::PrepareInt16(const float* x, int64_t rows, int64_t cols) {
  const int64_t blocks = cols / kActivationBlock;
  auto* values = int16_values_.Grow<int16_t>(rows * cols);
  auto* facts = int16_blocks_.Grow<ActivationBlock>(rows * blocks);
  pool_.Run((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int32_t) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t r = task * kRowsPerTask; r < end; ++r) {
      kernels_.quantise_int16(x + r * cols, cols, values + r * cols, facts + r * blocks);
    }
  });
  return {.cols = cols, .wholes = values, .blocks = facts};
}

void CpuProducts::PlanTasks(int64_t rows, std::span<const LinearTarget> targets) {
  int64_t bytes = 0;
  for (const LinearTarget& target : targets) {
    bytes += MatrixOf(target).panels() * MatrixOf(target).panel_bytes();
  }
  const int64_t tasks_wanted = kTasksPerThread * pool_.threads();
  const int64_t task_bytes =
      pool_.threads() == 1 ? bytes : std::max(kTaskBytesMin / rows, bytes / tasks_wanted);
  tasks_.clear();
  for (const LinearTarget& target : targets) {
    const CpuMatrix& matrix = MatrixOf(target);
    const int64_t step = std::max<int64_t>(1, task_bytes / matrix.panel_bytes());
    for (int64_t p = 0; p < matrix.panels(); p += step) {
      tasks_.push_back({&target, &matrix, p, std::min(matrix.panels(), p + step)});
    }
  }
}

void CpuProducts::RunTask(const Task& task, const Activations& x, int64_t rows) const {
  const LinearTarget& target = *task.target;
  const kernels::PanelFormat& format = task.matrix->format();
  const int64_t value_bytes = format.activation == ActivationType::kFloat   ? 4
                              : format.activation == ActivationType::kInt16 ? 2
                                                                            : 1;
  const int64_t rows_at_once =
      std::max<int64_t>(4, kRowBytesAtOnce / (x.cols * value_bytes) / 4 * 4);
  for (int64_t r = 0; r < rows; r += rows_at_once) {
    for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
      const int64_t row = p * kernels_.panel_rows;
      const kernels::PanelOutput output = {
          .out = target.out + r * target.out_stride + row,
          .stride = target.out_stride,
          .lanes = static_cast<int32_t>(
              std::min<int64_t>(kernels_.panel_rows, task.matrix->rows() - row)),
          .bias = target.bias == nullptr ? nullptr : target.bias + row,
          .accumulate = target.accumulate,
      };
      format.multiply(task.matrix->panel(p), x, r, std::min(rows_at_once, rows - r), output);
    }
  }
}

}  // namespace polysil

#include "device/cpu/cpu_products.h"

#include <algorithm>

#include "polysil/base/check.h"

namespace polysil {
namespace {

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

// Quantising so many floats takes about as long as a fork.
constexpr int64_t kQuantiseTaskFloats = 2 << 10;

int64_t RowsPerTask(int64_t cols) {
  return std::max<int64_t>(1, kQuantiseTaskFloats / cols);
}

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
  const int64_t outliers_max = kernels::RowOutliersMax(cols);
  auto* quantised = int8_blocks_.Grow<kernels::Int8Block>(rows * blocks);
  auto* outliers = outliers_.Grow<kernels::ActivationOutlier>(rows * outliers_max);
  auto* counts = outlier_counts_.Grow<int32_t>(rows);
  const int64_t step = RowsPerTask(cols);
  pool_.Run((rows + step - 1) / step, [&](int64_t task, int32_t) {
    const int64_t end = std::min(rows, (task + 1) * step);
    for (int64_t r = task * step; r < end; ++r) {
      counts[r] = kernels_.quantise_int8(x + r * cols, cols, quantised + r * blocks,
                                         outliers + r * outliers_max);
    }
  });
  return {.cols = cols, .int8_blocks = quantised, .outliers = outliers, .outlier_counts = counts};
}

Activations CpuProducts::PrepareInt16(const float* x, int64_t rows, int64_t cols) {
  const int64_t blocks = cols / kActivationBlock;
  auto* quantised = int16_blocks_.Grow<kernels::Int16Block>(rows * blocks);
  const int64_t step = RowsPerTask(cols);
  pool_.Run((rows + step - 1) / step, [&](int64_t task, int32_t) {
    const int64_t end = std::min(rows, (task + 1) * step);
    for (int64_t r = task * step; r < end; ++r) {
      kernels_.quantise_int16(x + r * cols, cols, quantised + r * blocks);
    }
  });
  return {.cols = cols, .int16_blocks = quantised};
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

namespace {

// Asks for the first panel of a task at once: products ask for each line one panel ahead.
void Prefetch(const std::byte* panel, int64_t bytes) {
  constexpr int64_t kBytesMax = 16 << 10;  // half of the first-level cache
  for (int64_t at = 0; at < std::min(bytes, kBytesMax); at += 64) {
    __builtin_prefetch(panel + at);
  }
}

}  // namespace

void CpuProducts::RunTask(const Task& task, const Activations& x, int64_t rows) const {
  const LinearTarget& target = *task.target;
  const kernels::PanelFormat& format = task.matrix->format();
  Prefetch(task.matrix->panel(task.panel_begin), task.matrix->panel_bytes());
  // A value takes 1.5 bytes, 2.5 or 4.
  const int64_t rows_at_once = std::max<int64_t>(4, kRowBytesAtOnce / (x.cols * 2) / 4 * 4);
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

// CpuProducts: the Linear of the CPU device: quantises the rows of x once in each form that the
// targets want, then spreads the targets' panels over the pool. Called by the worker thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/cpu_matrix.h"
#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/device/ops.h"

namespace polysil {

class CpuProducts final {
 public:
  CpuProducts(const kernels::CpuKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool) {}

  void Linear(const float* x, int64_t rows, int64_t cols, std::span<const LinearTarget> targets);

 private:
  // Some panels in a row of one target.
  struct Task {
    const LinearTarget* target;
    const CpuMatrix* matrix;
    int64_t panel_begin;
    int64_t panel_end;
  };

  kernels::Activations PrepareInt8(const float* x, int64_t rows, int64_t cols);
  kernels::Activations PrepareInt16(const float* x, int64_t rows, int64_t cols);
  void PlanTasks(int64_t rows, std::span<const LinearTarget> targets);
  void RunTask(const Task& task, const kernels::Activations& x, int64_t rows) const;

  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  std::vector<Task> tasks_;
  AlignedMemory int8_blocks_;
  AlignedMemory outliers_;
  AlignedMemory outlier_counts_;
  AlignedMemory int16_blocks_;
};

}  // namespace polysil

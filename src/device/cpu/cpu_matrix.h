// CpuMatrix: a weight matrix of the CPU device, as panels for products. The rows as the checkpoint
// holds them stay where they are and serve Embed.
#pragma once

#include <cstdint>
#include <memory>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/panel_arena.h"
#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/base/status.h"
#include "polysil/device/backend.h"

namespace polysil {

class CpuMatrix final : public WeightMatrix {
 public:
  // Checks the tensor's shape, then packs it, spread over the pool. exact: for float activations.
  static StatusOr<std::unique_ptr<CpuMatrix>> Load(const HostTensor& tensor,
                                                   const kernels::CpuKernels& kernels, bool exact,
                                                   PanelArena& arena, ThreadPool& pool);

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }

  const kernels::PanelFormat& format() const { return format_; }
  int64_t panels() const { return panels_; }
  int64_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(int64_t index) const { return memory_.get() + index * panel_bytes_; }

 private:
  CpuMatrix(const HostTensor& tensor, const kernels::PanelFormat& format, int32_t panel_rows);

  int64_t rows_;
  int64_t cols_;
  const kernels::PanelFormat& format_;
  int64_t panels_ = 0;
  int64_t panel_bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

// A copy of the tensor as it is.
class CpuTable final : public EmbeddingTable {
 public:
  static StatusOr<std::unique_ptr<CpuTable>> Load(const HostTensor& tensor);

  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }

  // out [cols] = the exact values of a row.
  void CopyRow(int64_t row, float* out) const;

 private:
  CpuTable(const HostTensor& tensor, AlignedMemory memory);

  int64_t rows_;
  int64_t cols_;
  int64_t row_bytes_;
  kernels::WeightType type_;
  AlignedMemory memory_;
};

}  // namespace polysil

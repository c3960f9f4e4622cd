#include "device/cpu/cpu_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace polysil {
namespace {

constexpr int64_t kElementsMax = int64_t{1} << 40;
constexpr int64_t kPackBytesPerTask = 256 << 10;

static_assert(static_cast<int>(DType::kMXFP4) == static_cast<int>(kernels::WeightType::kMXFP4));
// The kernels' name of a type: both lists are in one order, which a test compares by name and size.
kernels::WeightType WeightTypeOf(DType dtype) {
  return static_cast<kernels::WeightType>(static_cast<int>(dtype));
}

Status CheckShape(const HostTensor& tensor) {
  const DTypeInfo& info = Info(tensor.dtype);
  if (tensor.data == nullptr) return InvalidArgument("a {} matrix has no data", info.name);
  if (tensor.rows <= 0 || tensor.cols <= 0) {
    return InvalidArgument("a {} matrix of {} rows and {} columns is empty", info.name, tensor.rows,
                           tensor.cols);
  }
  if (tensor.cols > kElementsMax / tensor.rows) {
    return InvalidArgument("a {} matrix of {} rows and {} columns is too large", info.name,
                           tensor.rows, tensor.cols);
  }
  if (tensor.cols % info.values_per_block != 0) {
    return InvalidArgument("a {} matrix has {} columns, not a multiple of the {} values of a block",
                           info.name, tensor.cols, info.values_per_block);
  }
  return OkStatus();
}

int64_t RowBytes(const HostTensor& tensor) {
  const DTypeInfo& info = Info(tensor.dtype);
  return tensor.cols / info.values_per_block * info.bytes_per_block;
}

}  // namespace

CpuMatrix::CpuMatrix(const HostTensor& tensor, const kernels::PanelFormat& format,
                     int32_t panel_rows)
    : rows_(tensor.rows),
      cols_(tensor.cols),
      format_(format),
      panels_((tensor.rows + panel_rows - 1) / panel_rows),
      panel_bytes_(format.panel_bytes(tensor.cols)) {}

StatusOr<std::unique_ptr<CpuMatrix>> CpuMatrix::Load(const HostTensor& tensor,
                                                     const kernels::CpuKernels& kernels, bool exact,
                                                     PanelArena& arena, ThreadPool& pool) {
  RETURN_IF_ERROR(CheckShape(tensor));
  const kernels::PanelFormat& format = kernels.format(WeightTypeOf(tensor.dtype), exact);
  std::unique_ptr<CpuMatrix> matrix(new CpuMatrix(tensor, format, kernels.panel_rows));
  matrix->memory_ = arena.Allocate(matrix->panels_ * matrix->panel_bytes_);
  if (matrix->memory_ == nullptr) {
    return ResourceExhausted("no memory for the {} bytes of a {} matrix of {} rows and {} columns",
                             matrix->panels_ * matrix->panel_bytes_, Info(tensor.dtype).name,
                             tensor.rows, tensor.cols);
  }
  const int64_t row_bytes = RowBytes(tensor);
  const int64_t panels_per_task = std::max<int64_t>(1, kPackBytesPerTask / matrix->panel_bytes_);
  const int64_t tasks = (matrix->panels_ + panels_per_task - 1) / panels_per_task;
  pool.Run(tasks, [&](int64_t task, int32_t) {
    const int64_t end = std::min(matrix->panels_, (task + 1) * panels_per_task);
    for (int64_t p = task * panels_per_task; p < end; ++p) {
      const int64_t row = p * kernels.panel_rows;
      const auto rows =
          static_cast<int32_t>(std::min<int64_t>(kernels.panel_rows, tensor.rows - row));
      format.pack(WeightTypeOf(tensor.dtype), tensor.data + row * row_bytes, row_bytes, rows,
                  tensor.cols, matrix->memory_.get() + p * matrix->panel_bytes_);
    }
  });
  return matrix;
}

CpuTable::CpuTable(const HostTensor& tensor, AlignedMemory memory)
    : rows_(tensor.rows),
      cols_(tensor.cols),
      row_bytes_(RowBytes(tensor)),
      type_(WeightTypeOf(tensor.dtype)),
      memory_(std::move(memory)) {}

StatusOr<std::unique_ptr<CpuTable>> CpuTable::Load(const HostTensor& tensor) {
  RETURN_IF_ERROR(CheckShape(tensor));
  const int64_t bytes = tensor.rows * RowBytes(tensor);
  AlignedMemory memory = AlignedMemory::Allocate(bytes);
  if (memory.data() == nullptr) {
    return ResourceExhausted("no memory for the {} bytes of a {} table of {} rows and {} columns",
                             bytes, Info(tensor.dtype).name, tensor.rows, tensor.cols);
  }
  std::memcpy(memory.data(), tensor.data, static_cast<size_t>(bytes));
  return std::unique_ptr<CpuTable>(new CpuTable(tensor, std::move(memory)));
}

void CpuTable::CopyRow(int64_t row, float* out) const {
  kernels::Dequantise(type_, memory_.data() + row * row_bytes_, cols_, out);
}

}  // namespace polysil

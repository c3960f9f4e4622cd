#include "device/cpu/cpu_device.h"

#include <hwloc.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "device/cpu/cpu_ops.h"
#include "device/cpu/thread_pool.h"

namespace polysil {
namespace {

constexpr int32_t kThreadsMax = 1024;
constexpr int64_t kMatrixBytesMax = int64_t{1} << 44;

struct Machine {
  int32_t cores = 1;
  int64_t memory_bytes = 0;
  std::string cpu_model = "CPU";
};

// What hwloc knows of the part of the machine that this process may run on.
Machine InspectMachine() {
  Machine machine;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return machine;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
      hwloc_topology_restrict(topology, allowed, 0);
    }
    hwloc_bitmap_free(allowed);
    machine.cores = std::max(1, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE));
    const hwloc_obj_t root = hwloc_get_root_obj(topology);
    machine.memory_bytes = static_cast<int64_t>(root->total_memory);
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char* model =
        package != nullptr ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
    if (model != nullptr) machine.cpu_model = model;
  }
  hwloc_topology_destroy(topology);
  return machine;
}

// The kernels' name of a type: the two enums have the same order.
kernels::WeightType WeightTypeOf(DType dtype) {
  return static_cast<kernels::WeightType>(static_cast<int>(dtype));
}

class CpuBuffer final : public DeviceBuffer {
 public:
  CpuBuffer(std::byte* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  ~CpuBuffer() override { std::free(data_); }
  std::byte* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  std::byte* data_;
  int64_t bytes_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, int32_t threads)
      : info_(std::move(info)), pool_(threads), ops_(pool_) {}

  const DeviceInfo& info() const override { return info_; }

  StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(const HostTensor& tensor) override {
    const DTypeInfo& dtype = Info(tensor.dtype);
    if (tensor.rows <= 0 || tensor.cols <= 0) {
      return InvalidArgument("matrix of {} rows and {} columns is empty", tensor.rows, tensor.cols);
    }
    if (tensor.cols % dtype.values_per_block != 0) {
      return InvalidArgument("matrix has {} columns, not a multiple of the {} values of a {} block",
                             tensor.cols, dtype.values_per_block, dtype.name);
    }
    if (tensor.cols > kMatrixBytesMax / 4 / tensor.rows) {
      return InvalidArgument("matrix of {} rows and {} columns is too large", tensor.rows,
                             tensor.cols);
    }
    return std::unique_ptr<WeightMatrix>(new CpuMatrix(tensor, WeightTypeOf(tensor.dtype)));
  }

  StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    if (bytes < 0 || bytes > kMatrixBytesMax) {
      return InvalidArgument("cannot allocate {} bytes", bytes);
    }
    const auto rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(rounded, 64)));
    if (data == nullptr) return ResourceExhausted("no memory for a buffer of {} bytes", bytes);
    std::memset(data, 0, rounded);
    return std::unique_ptr<DeviceBuffer>(new CpuBuffer(data, bytes));
  }

  Ops& ops() override { return ops_; }

 private:
  DeviceInfo info_;
  ThreadPool pool_;
  CpuOps ops_;
};

}  // namespace

StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return InvalidArgument("cpu threads is {}, must be 0 to {}", options.threads, kThreadsMax);
  }
  const Machine machine = InspectMachine();
  const int32_t threads = options.threads == 0 ? machine.cores : options.threads;
  DeviceInfo info = {
      .kind = "cpu",
      .description = fmt::format("{}, {} threads", machine.cpu_model, threads),
      .numeric_class = options.activations == CpuActivations::kQ8 ? "cpu/q8" : "cpu/f32",
      .memory_bytes = machine.memory_bytes,
  };
  return std::unique_ptr<Device>(new CpuDevice(std::move(info), threads));
}

}  // namespace polysil

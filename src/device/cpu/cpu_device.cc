#include "device/cpu/cpu_device.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/cpu_matrix.h"
#include "device/cpu/cpu_ops.h"
#include "device/cpu/cpu_topology.h"
#include "device/cpu/panel_arena.h"
#include "device/cpu/thread_pool.h"

namespace polysil {
namespace {

constexpr int32_t kThreadsMax = 1024;
constexpr int64_t kBufferBytesMax = int64_t{1} << 44;

class CpuBuffer final : public DeviceBuffer {
 public:
  CpuBuffer(AlignedMemory memory, int64_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  std::byte* data() override { return memory_.data(); }
  int64_t bytes() const override { return bytes_; }

 private:
  AlignedMemory memory_;
  int64_t bytes_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(DeviceInfo info, const kernels::CpuKernels& kernels, bool exact, int32_t threads)
      : info_(std::move(info)),
        kernels_(kernels),
        exact_(exact),
        pool_(threads),
        ops_(kernels, pool_) {}

  const DeviceInfo& info() const override { return info_; }

  StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(const HostTensor& tensor) override {
    ASSIGN_OR_RETURN(std::unique_ptr<CpuMatrix> matrix,
                     CpuMatrix::Load(tensor, kernels_, exact_, arena_, pool_));
    return std::unique_ptr<WeightMatrix>(std::move(matrix));
  }

  StatusOr<std::unique_ptr<EmbeddingTable>> LoadTable(const HostTensor& tensor) override {
    ASSIGN_OR_RETURN(std::unique_ptr<CpuTable> table, CpuTable::Load(tensor));
    return std::unique_ptr<EmbeddingTable>(std::move(table));
  }

  StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    if (bytes < 0 || bytes > kBufferBytesMax) {
      return InvalidArgument("a buffer of {} bytes was asked for, the most is {}", bytes,
                             kBufferBytesMax);
    }
    AlignedMemory memory = AlignedMemory::Allocate(bytes);
    if (memory.data() == nullptr) {
      return ResourceExhausted("no memory for a buffer of {} bytes", bytes);
    }
    return std::unique_ptr<DeviceBuffer>(new CpuBuffer(std::move(memory), bytes));
  }

  // The host is the device.
  StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t bytes) override {
    return Allocate(bytes);
  }
  void Copy(const std::byte* from, std::byte* to, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  Ops& ops() override { return ops_; }

 private:
  DeviceInfo info_;
  const kernels::CpuKernels& kernels_;
  bool exact_;
  PanelArena arena_;
  ThreadPool pool_;
  CpuOps ops_;
};

std::string_view NameOf(kernels::Isa isa) {
  switch (isa) {
    case kernels::Isa::kPortable:
      return "portable code";
    case kernels::Isa::kAvx2:
      return "AVX2";
    case kernels::Isa::kAvx512:
      return "AVX-512";
  }
  return "";
}

}  // namespace

StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return InvalidArgument("cpu threads is {}, must be 0 to {}", options.threads, kThreadsMax);
  }
  const kernels::Isa isa = options.isa.value_or(kernels::BestIsa());
  if (!kernels::Runs(isa)) return FailedPrecondition("this machine has no {}", NameOf(isa));
  const CpuTopology topology;
  const int32_t threads = options.threads == 0 ? topology.cores() : options.threads;
  const bool exact = options.activations == CpuActivations::kF32;
  DeviceInfo info = {
      .kind = "cpu",
      .description = fmt::format("{}, {}, {} {}", topology.cpu_model(), NameOf(isa), threads,
                                 threads == 1 ? "thread" : "threads"),
      .numeric_class = exact ? "cpu/f32" : "cpu/q8",
      .memory_bytes = topology.memory_bytes(),
  };
  return std::unique_ptr<Device>(
      new CpuDevice(std::move(info), kernels::KernelsFor(isa), exact, threads));
}

}  // namespace polysil

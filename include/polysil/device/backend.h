// Device: memory, weights and Ops of one accelerator (or of the CPU). One worker thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "polysil/base/status.h"
#include "polysil/core/dtype.h"
#include "polysil/device/ops.h"

namespace polysil {

// Weights in host memory as a checkpoint holds them: rows of whole blocks, little-endian.
struct HostTensor {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;  // a multiple of the dtype's block
  const std::byte* data = nullptr;
};

// Memory of a device or, for copies with it, of its host: zeroed, 64-byte aligned. Freed with the
// object.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual std::byte* data() = 0;
  virtual int64_t bytes() const = 0;
};

struct DeviceInfo {
  std::string kind;           // "cpu"
  std::string description;    // "AMD EPYC, AVX2, 2 threads"
  std::string numeric_class;  // kernel family and activation type; what must agree for equal tokens
  int64_t memory_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // A matrix for products, and a table for Embed; a tied embedding is loaded as both. Neither reads
  // the tensor's memory later: a file may change under a server that runs.
  virtual StatusOr<std::unique_ptr<WeightMatrix>> LoadMatrix(const HostTensor& tensor) = 0;
  virtual StatusOr<std::unique_ptr<EmbeddingTable>> LoadTable(const HostTensor& tensor) = 0;
  virtual StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) = 0;
  // Memory of the host, for Copy alone.
  virtual StatusOr<std::unique_ptr<DeviceBuffer>> AllocateHost(int64_t bytes) = 0;
  // Between the device and such memory, either way; in order with the calls of ops().
  virtual void Copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;
  virtual Ops& ops() = 0;
};

}  // namespace polysil

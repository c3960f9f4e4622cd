// The CPU as a Device: weights repacked for the widest instruction set it has, Ops over a pool of
// compute threads. The thread that calls Ops (the worker) is one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/kernels.h"
#include "polysil/base/status.h"
#include "polysil/device/backend.h"

namespace polysil {

enum class CpuActivations {
  kQ8,   // products with quantised weights round activations to 8 or 16 bits per block of 32
  kF32,  // float activations and exact weights everywhere: the oracle path, slow and large
};

struct CpuOptions {
  int32_t threads = 0;  // 0: the physical cores that this process may use
  CpuActivations activations = CpuActivations::kQ8;
  std::optional<kernels::Isa> isa = std::nullopt;  // none: the best one here
};

// Fails when the machine lacks options.isa or the thread count is out of range.
StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuOptions& options);

}  // namespace polysil

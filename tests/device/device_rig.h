// Devices under test and random inputs for them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "kernels/kernels.h"
#include "kernels/random_data.h"
#include "polysil/device/backend.h"

namespace polysil {

inline constexpr DType kDTypes[] = {
    DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0,  DType::kQ4_0,   DType::kQ4_1,
    DType::kQ5_0, DType::kQ5_1,   DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K,   DType::kQ5_K,
    DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kIQ3_S, DType::kIQ2_XS, DType::kMXFP4,
};

struct DeviceCase {
  std::string name;
  CpuOptions options;
};

inline void PrintTo(const DeviceCase& c, std::ostream* out) {
  *out << c.name;
}

// Every implementation of Device that this machine can run.
inline std::vector<DeviceCase> DeviceCases() {
  std::vector<DeviceCase> cases;
  for (const kernels::Isa isa :
       {kernels::Isa::kPortable, kernels::Isa::kAvx2, kernels::Isa::kAvx512}) {
    if (!kernels::Runs(isa)) continue;
    const std::string name = isa == kernels::Isa::kPortable ? "portable"
                             : isa == kernels::Isa::kAvx2   ? "avx2"
                                                            : "avx512";
    cases.push_back(
        {"cpu_f32_" + name, {.threads = 2, .activations = CpuActivations::kF32, .isa = isa}});
    cases.push_back({"cpu_q8_" + name, {.threads = 2, .isa = isa}});
  }
  return cases;
}

inline std::unique_ptr<Device> MakeDevice(const CpuOptions& options) {
  auto device = CreateCpuDevice(options);
  EXPECT_TRUE(device.ok()) << device.status();
  return device.ok() ? *std::move(device) : nullptr;
}

// Calls of operator new by all threads since the program began; cpu_device_test.cc counts them.
int64_t AllocationsSoFar();

// A matrix of random blocks on a device, for products and as a table, with its exact values.
struct LoadedMatrix {
  LoadedMatrix(Device& device, DType dtype, int64_t rows, int64_t cols, uint32_t seed)
      : blocks(kernels::RandomBlocks(TypeOf(dtype), rows * cols, seed)),
        values(kernels::Dequantised(TypeOf(dtype), blocks, rows * cols)) {
    auto loaded = device.LoadMatrix({dtype, rows, cols, blocks.data()});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) matrix = *std::move(loaded);
    auto loaded_table = device.LoadTable({dtype, rows, cols, blocks.data()});
    EXPECT_TRUE(loaded_table.ok()) << loaded_table.status();
    if (loaded_table.ok()) table = *std::move(loaded_table);
  }
  static kernels::WeightType TypeOf(DType dtype) {
    return static_cast<kernels::WeightType>(static_cast<int>(dtype));
  }

  std::vector<std::byte> blocks;
  std::vector<float> values;
  std::unique_ptr<WeightMatrix> matrix;
  std::unique_ptr<EmbeddingTable> table;
};

}  // namespace polysil

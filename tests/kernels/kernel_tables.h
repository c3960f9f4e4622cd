// The instruction sets that a test can run here: those of the machine, and AVX-512 emulated.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace polysil::kernels {

// tests/kernels/emulated_avx512.cc, built where SIMDe is installed.
const CpuKernels& EmulatedAvx512Kernels();

struct NamedKernels {
  std::string name;
  const CpuKernels* kernels;
};

// Portable first: the others are compared with it.
inline std::vector<NamedKernels> TestedKernels() {
  std::vector<NamedKernels> all = {{"portable", &KernelsFor(Isa::kPortable)}};
  if (Runs(Isa::kAvx2)) all.push_back({"avx2", &KernelsFor(Isa::kAvx2)});
  if (Runs(Isa::kAvx512)) all.push_back({"avx512", &KernelsFor(Isa::kAvx512)});
#if defined(POLYSIL_TESTS_EMULATED_AVX512)
  all.push_back({"avx512_emulated", &EmulatedAvx512Kernels()});
#endif
  return all;
}

}  // namespace polysil::kernels

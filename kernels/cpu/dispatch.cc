#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/peak_kernels.h"

namespace polysil::kernels {

bool Runs(Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                    __builtin_cpu_supports("f16c") != 0;
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512vnni") != 0;
  }
  return false;
#else
  return isa == Isa::kPortable;
#endif
}

Isa BestIsa() {
  if (Runs(Isa::kAvx512)) return Isa::kAvx512;
  return Runs(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable;
}

const CpuKernels& KernelsFor(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
      return Avx2Kernels();
    case Isa::kAvx512:
      return Avx512Kernels();
  }
#endif
  return PortableKernels();
}

const PeakKernels& PeakKernelsFor(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kPortable:
      break;
    case Isa::kAvx2:
      return Avx2Peaks();
    case Isa::kAvx512:
      return Avx512Peaks();
  }
#endif
  return PortablePeaks();
}

// Scores; of 8-bit integers, scales of values and of queries, and 16-bit weights and queries.
int64_t AttentionScratchFloats(int32_t queries, int32_t head_size) {
  const int64_t scores = int64_t{queries} * kAttentionChunk;
  const int64_t scales = kAttentionChunk + (queries + 15) / 16 * 16;
  return scores + scales + scores / 2 + int64_t{queries} * PaddedHeadSize(head_size) / 2;
}

}  // namespace polysil::kernels

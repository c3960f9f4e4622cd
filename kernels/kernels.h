// Kernels: the math of a decoder on raw pointers and sizes. Includes nothing of ours; knows no
// class, thread or allocation. kernels/reference is the oracle (scalar, obvious), kernels/cpu the
// fast path.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"

namespace polysil::kernels {

// How the elements of a weight matrix are stored: the types of the GGUF format that we read.
enum class WeightType {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kIQ3_S,
  kIQ2_XS,
  kMXFP4,
};
inline constexpr int32_t kWeightTypes = 18;

struct WeightBlock {
  int32_t values;
  int32_t bytes;
};
// Values and bytes of one block of the type.
WeightBlock BlockOf(WeightType type);

// The exact values of `count` elements (whole blocks), as ggml defines them: every product and sum
// is rounded to float in the format's own order.
void Dequantise(WeightType type, const std::byte* blocks, int64_t count, float* out);

}  // namespace polysil::kernels

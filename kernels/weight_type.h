// How the elements of a weight matrix are stored: the types of the GGUF format that we read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polysil::kernels {

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

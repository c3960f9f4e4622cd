#include "polysil/core/dtype.h"

#include <array>
#include <utility>

namespace polysil {
namespace {

// In the order of DType, with GGUF's number where such tensors are read.
constexpr std::array<std::pair<std::optional<uint32_t>, DTypeInfo>, 19> kTypes = {{
    {0, {DType::kF32, "F32", 1, 4}},
    {1, {DType::kF16, "F16", 1, 2}},
    {30, {DType::kBF16, "BF16", 1, 2}},
    {8, {DType::kQ8_0, "Q8_0", 32, 34}},
    {2, {DType::kQ4_0, "Q4_0", 32, 18}},
    {3, {DType::kQ4_1, "Q4_1", 32, 20}},
    {6, {DType::kQ5_0, "Q5_0", 32, 22}},
    {7, {DType::kQ5_1, "Q5_1", 32, 24}},
    {10, {DType::kQ2_K, "Q2_K", 256, 84}},
    {11, {DType::kQ3_K, "Q3_K", 256, 110}},
    {12, {DType::kQ4_K, "Q4_K", 256, 144}},
    {13, {DType::kQ5_K, "Q5_K", 256, 176}},
    {14, {DType::kQ6_K, "Q6_K", 256, 210}},
    {20, {DType::kIQ4_NL, "IQ4_NL", 32, 18}},
    {23, {DType::kIQ4_XS, "IQ4_XS", 256, 136}},
    {21, {DType::kIQ3_S, "IQ3_S", 256, 110}},
    {17, {DType::kIQ2_XS, "IQ2_XS", 256, 74}},
    {39, {DType::kMXFP4, "MXFP4", 32, 17}},
    {std::nullopt, {DType::kI8, "I8", 1, 1}},
}};

}  // namespace

const DTypeInfo& Info(DType dtype) {
  return kTypes[static_cast<size_t>(dtype)].second;
}

std::optional<DType> DTypeFromGguf(uint32_t ggml_type) {
  for (const auto& [number, info] : kTypes) {
    if (number == ggml_type) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace polysil

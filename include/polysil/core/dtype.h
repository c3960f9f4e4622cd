// DType: how the elements of a tensor are stored. Block types follow the GGUF specification.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace polysil {

enum class DType {
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
  kI8,  // of keys and values only: no tensor of a file is read as it
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;     // as GGUF spells it: "Q4_1"
  int32_t values_per_block;  // 1, 32 or 256
  int32_t bytes_per_block;
};

// Facts of a type; never fails.
const DTypeInfo& Info(DType dtype);
// The type with GGUF's number (ggml_type), if it is one we read.
std::optional<DType> DTypeFromGguf(uint32_t ggml_type);

}  // namespace polysil

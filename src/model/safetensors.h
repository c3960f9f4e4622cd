// safetensors: the header of one file, checked: every tensor's bytes lie in the file, follow each
// other without gap or overlap to its end, and agree with its shape and type. Knows no model and no
// folder (hf_checkpoint.h does). Pure function of mapped bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/core/dtype.h"

namespace polysil {

struct SafetensorsTensor {
  std::string name;
  std::string type_name;            // "BF16"
  std::optional<DType> dtype;       // none: a type of the format that we cannot compute with
  std::vector<int64_t> shape;       // rows first; empty for a scalar
  std::span<const std::byte> data;  // may be unaligned
};

// In the order of the data. The spans point into `bytes`.
StatusOr<std::vector<SafetensorsTensor>> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace polysil

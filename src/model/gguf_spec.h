// ModelSpec from GGUF metadata: which keys each architecture has, what they mean and what they
// default to. Refuses what it does not know instead of guessing. Pure functions of a parsed file.
#pragma once

#include <cstdint>

#include "model/gguf.h"
#include "model/weights_builder.h"
#include "polysil/base/status.h"
#include "polysil/core/model_spec.h"

namespace polysil {

struct GgufModel {
  ModelSpec spec;
  TensorNames names;
};

// context_tokens as in CheckpointOptions.
StatusOr<GgufModel> ReadGgufModel(const GgufFile& file, int32_t context_tokens);

// The tensors in the file's order, shapes turned to rows first.
std::vector<FileTensor> ToFileTensors(const GgufFile& file);

}  // namespace polysil

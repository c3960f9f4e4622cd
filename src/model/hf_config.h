// ModelSpec from a Hugging Face config.json: which keys each model type has, what they mean and
// what they default to. Refuses what it does not know instead of guessing. Pure functions of the
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/weights_builder.h"
#include "polysil/base/status.h"
#include "polysil/core/model_spec.h"

namespace polysil {

struct HfModel {
  ModelSpec spec;
  TensorNames names;
};

// context_tokens as in CheckpointOptions.
StatusOr<HfModel> ReadHfModel(std::string_view config_json, int32_t context_tokens);

// model_type, or empty.
std::string HfModelType(std::string_view config_json);

}  // namespace polysil

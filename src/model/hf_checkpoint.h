// A Checkpoint from a folder as Hugging Face publishes it: config.json, one or more *.safetensors,
// tokenizer.json and what goes with it. Opens no file outside of the folder.
#pragma once

#include <string>

#include "model/checkpoint.h"
#include "polysil/base/status.h"

namespace polysil {

StatusOr<Checkpoint::Contents> ReadHfCheckpoint(const std::string& folder,
                                                const CheckpointOptions& options);
// All but runnable.
StatusOr<CheckpointSummary> SummarizeHfFolder(const std::string& folder);

}  // namespace polysil

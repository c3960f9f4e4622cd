// Configuration: YAML and --set onto polysil.v1.Config, then defaults and ranges. What is wrong is
// said with its file and line before anything starts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/v1/config.pb.h"

namespace polysil {

// Merges a YAML text into `config`. `origin` names it in errors: "serve.yaml".
Status MergeYaml(std::string_view yaml, std::string_view origin, v1::Config& config);

// Merges the file at `path`, at most 1 MiB.
Status MergeFile(const std::string& path, v1::Config& config);

// Merges one "key=value": "kv.blocks=1024". The value is read as a YAML scalar.
Status MergeSetting(std::string_view setting, v1::Config& config);

// Fills in every default that does not depend on the model, then checks each value's range.
// Left unset where the model or the machine decides: model.name, model.context_tokens, kv.blocks.
StatusOr<v1::Config> Complete(v1::Config config);

}  // namespace polysil

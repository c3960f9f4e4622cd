// ModelOptions: what every command that loads a model accepts, and how it becomes a configuration.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/v1/config.pb.h"

namespace polysil {

struct ModelOptions {
  std::string path;
  std::string config_file;
  std::vector<std::string> settings;  // KEY=VALUE
};

// `options` must outlive the command.
void AddModelOptions(CLI::App& command, ModelOptions& options);

// Defaults, then the file, then --set; the caller merges its flags before Complete.
StatusOr<v1::Config> ReadConfig(const ModelOptions& options);

Status ApplyLogLevel(const v1::Config& config);

// For commands that talk to a person: no log lines between the answers unless asked for.
StatusOr<v1::Config> ReadQuietConfig(const ModelOptions& options);

}  // namespace polysil

#include "cli/model_options.h"

#include <utility>

#include "base/log.h"
#include "daemon/config.h"

namespace polysil {

void AddModelOptions(CLI::App& command, ModelOptions& options) {
  command
      .add_option("model", options.path,
                  "a .gguf file, or a folder with config.json, *.safetensors "
                  "and tokenizer.json")
      ->required()
      ->type_name("MODEL");
  command
      .add_option("--config", options.config_file, "YAML file; docs/configuration.md has the keys")
      ->type_name("FILE");
  command.add_option("--set", options.settings, "one key of the configuration, as kv.blocks=1024")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
}

StatusOr<v1::Config> ReadConfig(const ModelOptions& options) {
  v1::Config config;
  if (!options.config_file.empty()) RETURN_IF_ERROR(MergeFile(options.config_file, config));
  for (const std::string& setting : options.settings) {
    RETURN_IF_ERROR(MergeSetting(setting, config));
  }
  return config;
}

Status ApplyLogLevel(const v1::Config& config) {
  ASSIGN_OR_RETURN(const LogLevel level, ParseLogLevel(config.log().level()));
  SetLogLevel(level);
  return OkStatus();
}

StatusOr<v1::Config> ReadQuietConfig(const ModelOptions& options) {
  ASSIGN_OR_RETURN(v1::Config config, ReadConfig(options));
  if (!config.log().has_level()) config.mutable_log()->set_level("warning");
  ASSIGN_OR_RETURN(config, Complete(std::move(config)));
  RETURN_IF_ERROR(ApplyLogLevel(config));
  return config;
}

}  // namespace polysil

// BenchCommand: the command line of `polysil bench`, which measures.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/model_options.h"
#include "polysil/base/status.h"

namespace polysil {

class BenchCommand final {
 public:
  // `status` receives what the command returned; both live as long as the app.
  void Add(CLI::App& app, Status& status);

 private:
  void AddOffline(CLI::App& bench, Status& status);
  void AddServe(CLI::App& bench, Status& status);
  void AddPrompts(CLI::App& command);
  Status RunOffline();

  ModelOptions model_;
  BenchOfflineArgs offline_;
  std::optional<int32_t> threads_;
  BenchServeArgs serve_;
};

}  // namespace polysil

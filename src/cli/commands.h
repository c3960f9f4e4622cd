// The sub-commands behind `polysil`. Each takes what the command line gave and returns OK or a
// sentence for stderr; main turns that into the exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/load_options.h"
#include "bench/offline_bench.h"
#include "polysil/base/status.h"
#include "polysil/v1/config.pb.h"

namespace polysil {

struct GenerateArgs {
  std::string model_path;
  std::string prompt;
  std::optional<int32_t> tokens_max;  // absent: 128
  float temperature = 0.0F;
  std::optional<uint64_t> seed;
};

struct ChatArgs {
  std::string model_path;
  std::string system;  // empty: what the template says
  float temperature = 0.7F;
};

struct TokenizeArgs {
  std::string model_path;
  bool parse_control_tokens = false;
  bool add_bos = true;
};

// One of seeds, seed and trace_path is set.
struct SimArgs {
  std::string seeds;  // FROM:COUNT
  std::optional<uint64_t> seed;
  std::string trace_path;
  int32_t kv_blocks = 10'000;  // for a trace
  std::optional<int64_t> until_tick;
  std::string json_path;
  std::string svg_path;
};

struct BenchOfflineArgs {
  std::string model_path;
  OfflineOptions rows;
  std::string json_path;
  std::string svg_path;
};

struct BenchServeArgs {
  LoadOptions load;
  std::string json_path;
  std::string requests_path;  // a line for each request
};

// Completes the prompt on stdout.
Status RunGenerate(const GenerateArgs& args, const v1::Config& config);
// A conversation: a line of stdin is a message, the answer goes to stdout.
Status RunChat(const ChatArgs& args, const v1::Config& config);
// All of stdin -> ids on stdout, separated by spaces.
Status RunTokenize(const TokenizeArgs& args);
// What a model file holds, on stdout.
Status RunInspect(const std::string& path);
// Runs the engine's core in a simulator; results on stdout and in files.
Status RunSim(const SimArgs& args);
// Measures a model on this machine; a table on stdout, more in files.
Status RunBenchOffline(const BenchOfflineArgs& args, const v1::Config& config);
// Puts load on a server; a table on stdout, more in files.
Status RunBenchServe(const BenchServeArgs& args);

}  // namespace polysil

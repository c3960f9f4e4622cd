#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "sim/plans.h"
#include "sim/report.h"
#include "sim/run.h"
#include "sim/timeline_svg.h"

namespace polysil {
namespace {

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return InvalidArgument("{} cannot be written", path);
  return OkStatus();
}

Status WriteResults(const SimArgs& args, const Simulation& simulation) {
  fmt::print("{}", TableOf(simulation));
  if (!args.json_path.empty()) RETURN_IF_ERROR(WriteFile(args.json_path, JsonOf(simulation)));
  if (!args.svg_path.empty()) RETURN_IF_ERROR(WriteFile(args.svg_path, SvgOf(simulation)));
  return OkStatus();
}

void PrintTick(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// Stops at until_tick, where one is given, and shows the ticks before it.
Status Run(const SimArgs& args, Simulation& simulation, uint64_t seed) {
  RunOptions options{.seed = seed};
  if (args.until_tick) {
    options.until_tick = *args.until_tick;
    options.print_tick = &PrintTick;
  }
  RETURN_IF_ERROR(RunToEnd(simulation, options));
  return WriteResults(args, simulation);
}

Status RunOneSeed(const SimArgs& args, uint64_t seed) {
  Simulation simulation(PlanOfSeed(seed), true);
  return Run(args, simulation, seed);
}

Status RunSeeds(const std::string& range) {
  uint64_t first = 0;
  uint64_t count = 0;
  char rest = 0;
  if (std::sscanf(range.c_str(), "%lu:%lu%c", &first, &count, &rest) != 2 || count == 0) {
    return InvalidArgument("--seeds is '{}', must be FROM:COUNT, as 1:2000", range);
  }
  int64_t ticks = 0;
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint64_t errors = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Simulation simulation(PlanOfSeed(seed), false);
    RETURN_IF_ERROR(RunToEnd(simulation, {.seed = seed}));
    const EngineStats stats = simulation.stats();
    ticks += simulation.ticks();
    preemptions += stats.preemptions;
    hits += stats.prefix_cache_hit_tokens;
    errors += stats.requests_error;
  }
  fmt::print(
      "{} seeds, {} ticks, {} preemptions, {} tokens from the prefix cache, {} requests "
      "failed by faults: all that must hold held\n",
      count, ticks, preemptions, hits, errors);
  return OkStatus();
}

Status RunTrace(const SimArgs& args) {
  ASSIGN_OR_RETURN(std::vector<TraceRequest> requests, ReadTrace(args.trace_path));
  Simulation simulation(PlanOfTrace(std::move(requests), args.kv_blocks), true);
  return Run(args, simulation, 0);
}

}  // namespace

Status RunSim(const SimArgs& args) {
  if (!args.trace_path.empty()) return RunTrace(args);
  if (args.seed) return RunOneSeed(args, *args.seed);
  return RunSeeds(args.seeds);
}

}  // namespace polysil

#include <fmt/core.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/commands.h"
#include "cli/text_output.h"
#include "sim/plans.h"
#include "sim/report.h"
#include "sim/run.h"
#include "sim/timeline_svg.h"

namespace polysil {
namespace {

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

// FROM:COUNT, both plain numbers, their last seed one too. Absent: it is not.
std::optional<std::pair<uint64_t, uint64_t>> ParseSeeds(std::string_view range) {
  uint64_t first = 0;
  uint64_t count = 0;
  const char* end = range.data() + range.size();
  const auto [colon, first_error] = std::from_chars(range.data(), end, first);
  if (first_error != std::errc() || colon == end || *colon != ':') return std::nullopt;
  const auto [rest, count_error] = std::from_chars(colon + 1, end, count);
  if (count_error != std::errc() || rest != end) return std::nullopt;
  if (count == 0 || count - 1 > std::numeric_limits<uint64_t>::max() - first) return std::nullopt;
  return std::pair(first, count);
}

Status RunSeeds(const std::string& range) {
  const auto seeds = ParseSeeds(range);
  if (!seeds) return InvalidArgument("--seeds is '{}', must be FROM:COUNT, as 1:2000", range);
  const auto [first, count] = *seeds;
  int64_t ticks = 0;
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint64_t errors = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = first + i;
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

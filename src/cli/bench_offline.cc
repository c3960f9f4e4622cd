#include <fmt/core.h>

#include <memory>

#include "bench/offline_bench.h"
#include "bench/offline_report.h"
#include "cli/commands.h"
#include "cli/text_output.h"
#include "daemon/assemble.h"
#include "device/cpu/cpu_bounds.h"
#include "device/cpu/cpu_topology.h"
#include "polysil/base/clock.h"

namespace polysil {

Status RunBenchOffline(const BenchOfflineArgs& args, const v1::Config& config) {
  RETURN_IF_ERROR(CheckWritable(args.json_path));
  RETURN_IF_ERROR(CheckWritable(args.svg_path));
  const SteadyClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Assembly> assembly,
                   Assembly::Create(args.model_path, config, clock));
  const Checkpoint& checkpoint = assembly->checkpoint();
  const EngineInfo& engine = assembly->engine().info();
  ASSIGN_OR_RETURN(const std::vector<OfflineRow> rows, PlanRows(args.rows, engine.limits));
  const ModelWork work(checkpoint.spec(), checkpoint.weights(), config.cpu().activations() == "f32",
                       assembly->kv_layout());

  const int32_t threads =
      config.cpu().threads() > 0 ? config.cpu().threads() : CpuTopology().cores();
  OfflineReport report = {.model = args.model_path,
                          .weight_types = checkpoint.WeightTypes(),
                          .device = assembly->device(),
                          .numeric_class = engine.numeric_class,
                          .step_bytes = work.step_bytes(),
                          .kv_token_bytes = work.kv_token_bytes(),
                          .bounds = {},
                          .results = {}};
  report.bounds.threads = threads;
  // What the machine can do changes with what else runs on it, so it is measured all along.
  const auto measure_bounds = [&]() -> Status {
    ShowProgress("measuring the machine");
    ASSIGN_OR_RETURN(const CpuBounds bounds, MeasureCpuBounds({.threads = threads}));
    report.bounds.Add(bounds);
    return OkStatus();
  };
  OfflineBench bench(assembly->engine(), work, clock);
  ASSIGN_OR_RETURN(report.results,
                   bench.Run(rows, args.rows.repetitions, &ShowProgress, measure_bounds));
  ShowProgress("");

  fmt::print("{}", TableOf(report));
  if (!args.json_path.empty()) RETURN_IF_ERROR(WriteFile(args.json_path, JsonOf(report)));
  if (!args.svg_path.empty()) RETURN_IF_ERROR(WriteFile(args.svg_path, RooflineSvgOf(report)));
  return OkStatus();
}

}  // namespace polysil

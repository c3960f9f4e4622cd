#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "bench/load_report.h"
#include "bench/load_run.h"
#include "cli/commands.h"
#include "cli/text_output.h"
#include "polysil/base/clock.h"

namespace polysil {
namespace {

void ShowLoad(const LoadProgress& progress) {
  ShowProgress(fmt::format("{:.0f} s: {} sent, {} ended, {} in flight", progress.seconds,
                           progress.sent, progress.ended, progress.in_flight));
}

}  // namespace

Status RunBenchServe(const BenchServeArgs& args) {
  RETURN_IF_ERROR(Validate(args.load));
  RETURN_IF_ERROR(CheckWritable(args.json_path));
  const SteadyClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadRun> run, LoadRun::Create(args.load, clock));
  std::ofstream lines;
  if (!args.requests_path.empty()) {
    lines.open(args.requests_path, std::ios::trunc);
    if (!lines) return InvalidArgument("{} cannot be written", args.requests_path);
  }
  RETURN_IF_ERROR(run->Prepare());
  LoadReport report(args.load);
  const LoadTotals totals = run->Run(
      [&](const CallRecord& call) {
        report.Add(call);
        if (lines.is_open()) lines << JsonLineOf(call);
      },
      &ShowLoad);
  ShowProgress("");

  fmt::print("{}", report.Table(totals));
  for (const std::string& warning : report.Warnings(totals)) {
    fmt::print(stderr, "warning: {}\n", warning);
  }
  if (!args.json_path.empty()) {
    RETURN_IF_ERROR(WriteFile(args.json_path, report.Json(totals, run->model())));
  }
  lines.close();
  if (!args.requests_path.empty() && !lines) {
    return InvalidArgument("{} cannot be written", args.requests_path);
  }
  if (report.completed() == 0 && totals.calls > 0 && args.load.cancel_after_tokens == 0) {
    return Unavailable("none of {} requests was completed", totals.calls);
  }
  return OkStatus();
}

}  // namespace polysil

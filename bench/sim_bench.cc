// How fast the simulator is: random seeds, and the Mooncake conversation trace as a whole.
#include <benchmark/benchmark.h>

#include <utility>

#include "sim/plans.h"
#include "sim/run.h"

namespace polysil {
namespace {

void BM_Seeds(benchmark::State& state) {
  uint64_t seed = 0;
  int64_t ticks = 0;
  for (auto _ : state) {
    ++seed;
    Simulation simulation(PlanOfSeed(seed), false);
    const Status status = RunToEnd(simulation, {.seed = seed});
    if (!status.ok()) state.SkipWithError(Message(status).c_str());
    ticks += simulation.ticks();
  }
  state.counters["ticks/s"] =
      benchmark::Counter(static_cast<double>(ticks), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Seeds)->Iterations(2000)->Unit(benchmark::kMicrosecond);

void BM_MooncakeTrace(benchmark::State& state) {
  int64_t requests = 0;
  for (auto _ : state) {
    StatusOr<std::vector<TraceRequest>> trace =
        ReadTrace(POLYSIL_SOURCE_DIR "/../shared/traces/mooncake_conversation.jsonl");
    if (!trace.ok()) {
      state.SkipWithError(Message(trace.status()).c_str());
      break;
    }
    requests += static_cast<int64_t>(trace->size());
    Simulation simulation(PlanOfTrace(*std::move(trace), 10'000), true);
    const Status status = RunToEnd(simulation, {});
    if (!status.ok()) state.SkipWithError(Message(status).c_str());
  }
  state.counters["requests/s"] =
      benchmark::Counter(static_cast<double>(requests), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_MooncakeTrace)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace polysil

BENCHMARK_MAIN();

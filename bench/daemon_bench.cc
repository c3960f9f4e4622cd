// The engine over the real model on the CPU: how much of the time the device waits for its next
// step, with one step in flight and with two. Compare lines of one run; `gap` is the time that no
// step ran, as a part of the time that steps ran.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <latch>
#include <memory>
#include <string>

#include "base/log.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_thread.h"
#include "exec/local_executor.h"
#include "model/checkpoint.h"

namespace polysil {
namespace {

constexpr int32_t kPromptTokens = 16;
constexpr int32_t kOutputTokens = 96;

class EndSink final : public OutputSink {
 public:
  explicit EndSink(std::latch& ended) : ended_(ended) {}
  void OnOutput(SequenceOutput output) override {
    if (output.finish) ended_.count_down();
  }

 private:
  std::latch& ended_;
};

std::unique_ptr<EngineThread> OpenEngine(const Checkpoint& checkpoint, int32_t steps_in_flight,
                                         const Clock& clock) {
  auto device = CreateCpuDevice({});
  auto executor = LocalExecutor::Create(
      *std::move(device), checkpoint,
      {.limits = {.tokens_max = 256, .steps_in_flight_max = steps_in_flight}, .kv_blocks = 1024});
  auto engine =
      EngineThread::Create({.prefix_cache = false},
                           {.vocab_size = checkpoint.spec().vocab_size, .context_tokens_max = 1024},
                           *std::move(executor), clock);
  return *std::move(engine);
}

Request MakeRequest(int32_t index) {
  Request request{.sampling = {.temperature = 0.0F, .tokens_max = kOutputTokens}};
  for (int32_t i = 0; i < kPromptTokens; ++i) request.prompt.push_back(100 + 7 * i + index);
  return request;
}

void Decode(benchmark::State& state) {
  const auto sequences = static_cast<int32_t>(state.range(0));
  auto checkpoint =
      OpenCheckpoint(std::string(POLYSIL_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!checkpoint.ok()) {
    state.SkipWithError("the model is not there: make model");
    return;
  }
  const SteadyClock clock;
  const auto engine = OpenEngine(**checkpoint, static_cast<int32_t>(state.range(1)), clock);
  int64_t wall_ns = 0;
  double steps_s = 0;
  for (auto _ : state) {
    const EngineStats before = engine->Stats();
    std::latch ended(sequences);
    const int64_t begin_ns = clock.NowNs();
    for (int32_t i = 0; i < sequences; ++i) {
      if (!engine->Submit(MakeRequest(i), std::make_shared<EndSink>(ended)).ok()) std::abort();
    }
    ended.wait();
    wall_ns += clock.NowNs() - begin_ns;
    engine->WaitIdle(1'000'000'000);
    steps_s += engine->Stats().step_duration_s.sum - before.step_duration_s.sum;
  }
  state.counters["gap"] = static_cast<double>(wall_ns) * 1e-9 / steps_s - 1.0;
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * sequences * kOutputTokens) * 1e9 /
                         static_cast<double>(wall_ns));
}
BENCHMARK(Decode)
    ->ArgNames({"sequences", "in_flight"})
    ->ArgsProduct({{1, 8, 32}, {1, 2}})
    ->Iterations(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace polysil

int main(int argc, char** argv) {
  polysil::SetLogLevel(polysil::LogLevel::kOff);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

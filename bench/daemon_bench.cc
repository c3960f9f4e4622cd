// The engine over the real model on the CPU. Compare lines of one run.
//
// Decode: how much of the time the device waits for its next step, with one step in flight and with
// two; `gap` is the time that no step ran, as a part of the time that steps ran.
//
// LongPrompt: what a prompt of 8,000 tokens does to 16 streams, without a target for the time
// between two tokens and with one; `ratio` is the 99th percentile of that time while the prompt is
// computed, divided by that of the streams alone.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine_thread.h"
#include "exec/local_executor.h"
#include "model/checkpoint.h"

namespace polysil {
namespace {

constexpr int32_t kPromptTokens = 16;
constexpr int32_t kOutputTokens = 96;
constexpr int32_t kContextTokens = 8192;
constexpr int32_t kLongPromptTokens = 8000;
constexpr int32_t kStreams = 16;
constexpr int32_t kStreamTokens = 256;

class EndSink final : public OutputSink {
 public:
  explicit EndSink(std::latch& ended) : ended_(ended) {}
  void OnOutput(SequenceOutput output) override {
    if (output.finish) ended_.count_down();
  }

 private:
  std::latch& ended_;
};

// The gaps between the tokens of several streams, from one Take to the next.
class Gaps final {
 public:
  explicit Gaps(const Clock& clock) : clock_(clock) {}
  int64_t now_ns() const { return clock_.NowNs(); }

  void Add(int64_t gap_ns) {
    std::lock_guard lock(mutex_);
    gaps_ns_.push_back(gap_ns);
    changed_.notify_all();
  }
  // Of at least so many gaps.
  std::vector<int64_t> Take(size_t gaps_min) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return gaps_ns_.size() >= gaps_min; });
    return std::exchange(gaps_ns_, {});
  }

 private:
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> gaps_ns_;
};

double PercentileMs(std::vector<int64_t> values_ns, double share) {
  const auto place =
      values_ns.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values_ns.size() - 1));
  std::nth_element(values_ns.begin(), place, values_ns.end());
  return static_cast<double>(*place) * 1e-6;
}

std::unique_ptr<Checkpoint> OpenModel(benchmark::State& state) {
  auto checkpoint =
      OpenCheckpoint(std::string(POLYSIL_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (checkpoint.ok()) return *std::move(checkpoint);
  state.SkipWithError("the model is not there: make model");
  return nullptr;
}

std::unique_ptr<EngineThread> OpenEngine(const Checkpoint& checkpoint, int32_t steps_in_flight,
                                         double itl_target_ms, const Clock& clock) {
  auto device = CreateCpuDevice({});
  auto executor = LocalExecutor::Create(
      *std::move(device), checkpoint,
      {.limits = {.tokens_max = 256, .steps_in_flight_max = steps_in_flight}, .kv_blocks = 4096});
  auto engine = EngineThread::Create(
      {.itl_target_ns = static_cast<int64_t>(itl_target_ms * 1e6), .prefix_cache = false},
      {.vocab_size = checkpoint.spec().vocab_size, .context_tokens_max = kContextTokens},
      *std::move(executor), clock);
  return *std::move(engine);
}

Request MakeRequest(int32_t index, int32_t prompt_tokens, int32_t tokens_max) {
  Request request{.sampling = {.temperature = 0.0F, .tokens_max = tokens_max}};
  for (int32_t i = 0; i < prompt_tokens; ++i) request.prompt.push_back(100 + 7 * (i % 500) + index);
  return request;
}

void SubmitOrAbort(EngineThread& engine, Request request, std::shared_ptr<OutputSink> sink) {
  if (!engine.Submit(std::move(request), std::move(sink)).ok()) std::abort();
}

// Tells the gaps of one stream, and begins the next when it is over: so the streams stay as long as
// they are, on average.
class Stream final : public OutputSink {
 public:
  Stream(EngineThread& engine, Gaps& gaps) : engine_(engine), gaps_(gaps) {}

  static void Start(EngineThread& engine, Gaps& gaps, int32_t index, int32_t tokens_max) {
    // Refused once the engine is about to go.
    (void)engine.Submit(MakeRequest(index, kPromptTokens, tokens_max),
                        std::make_shared<Stream>(engine, gaps));
  }

  void OnOutput(SequenceOutput output) override {
    const int64_t now_ns = gaps_.now_ns();
    if (last_ns_ && !output.tokens.empty()) gaps_.Add(now_ns - *last_ns_);
    last_ns_ = now_ns;
    if (output.finish == FinishReason::kLength) Start(engine_, gaps_, 0, kStreamTokens);
  }

 private:
  EngineThread& engine_;
  Gaps& gaps_;
  std::optional<int64_t> last_ns_;
};

// They are of all lengths from the start; what comes before is not counted.
void StartStreams(EngineThread& engine, Gaps& gaps) {
  for (int32_t i = 0; i < kStreams; ++i) {
    Stream::Start(engine, gaps, i, (i + 1) * kStreamTokens / kStreams);
  }
  gaps.Take(kStreams * kStreamTokens);
}

void Decode(benchmark::State& state) {
  const auto sequences = static_cast<int32_t>(state.range(0));
  const auto checkpoint = OpenModel(state);
  if (checkpoint == nullptr) return;
  const SteadyClock clock;
  const auto engine = OpenEngine(*checkpoint, static_cast<int32_t>(state.range(1)), 0, clock);
  int64_t wall_ns = 0;
  double steps_s = 0;
  for (auto _ : state) {
    const EngineStats before = engine->Stats();
    std::latch ended(sequences);
    const int64_t begin_ns = clock.NowNs();
    for (int32_t i = 0; i < sequences; ++i) {
      SubmitOrAbort(*engine, MakeRequest(i, kPromptTokens, kOutputTokens),
                    std::make_shared<EndSink>(ended));
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

// The target, if any, is so many percent of the median that the streams have alone.
void LongPrompt(benchmark::State& state) {
  const auto checkpoint = OpenModel(state);
  if (checkpoint == nullptr) return;
  const SteadyClock clock;
  Gaps gaps(clock);
  double target_ms = 0;
  if (state.range(0) > 0) {
    const auto engine = OpenEngine(*checkpoint, 2, 0, clock);
    StartStreams(*engine, gaps);
    target_ms =
        PercentileMs(gaps.Take(kStreams * 64), 0.5) * static_cast<double>(state.range(0)) / 100;
  }
  for (auto _ : state) {
    const auto engine = OpenEngine(*checkpoint, 2, target_ms, clock);
    gaps.Take(0);
    StartStreams(*engine, gaps);
    const double alone_ms = PercentileMs(gaps.Take(kStreams * kStreamTokens), 0.99);
    std::latch ended(1);
    const int64_t begin_ns = clock.NowNs();
    SubmitOrAbort(*engine, MakeRequest(0, kLongPromptTokens, 1), std::make_shared<EndSink>(ended));
    ended.wait();
    const double beside_ms = PercentileMs(gaps.Take(kStreams), 0.99);
    state.counters["prompt_s"] = static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
    state.counters["alone_p99_ms"] = alone_ms;
    state.counters["beside_p99_ms"] = beside_ms;
    state.counters["ratio"] = beside_ms / alone_ms;
  }
}
BENCHMARK(LongPrompt)
    ->ArgName("target_percent")
    ->Arg(0)
    ->Arg(130)
    ->Iterations(1)
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

// What the engine's bookkeeping costs: one step at a steady number of running sequences
// (scheduling, KV, results, outputs), and a prefix lookup of a long prompt. Also counts the
// allocations of a step.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/latency_ledger.h"
#include "tests/fakes/allocation_count.h"

namespace polysil {
namespace {

constexpr int32_t kTokensPerBlock = 16;
constexpr int32_t kPromptTokens = 512;

std::shared_ptr<const Request> MakeRequest(uint64_t id, int32_t prompt_tokens, int32_t tokens_max) {
  Request request{.id = RequestId{id}, .sampling = {.tokens_max = tokens_max}};
  request.prompt.resize(static_cast<size_t>(prompt_tokens));
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(id % 1000));
  return std::make_shared<const Request>(std::move(request));
}

EngineCoreOptions CoreOptions(int32_t sequences) {
  const int32_t blocks = sequences * 300;
  return {.sequences_max = sequences,
          .queue_max = sequences,
          .limits = {.vocab_size = 50'000,
                     .context_tokens_max = 1'000'000,
                     .kv_tokens_max = int64_t{blocks} * kTokensPerBlock,
                     .sequences_max = sequences},
          .step_limits = {.tokens_max = 8192, .sequences_max = sequences},
          .kv = {.blocks = blocks, .tokens_per_block = kTokensPerBlock}};
}

StepResult ResultOf(ScheduledStep step) {
  StepResult result{
      .step_id = step.step_id, .sequences = std::move(step.results_memory), .duration_ns = 1};
  for (const ScheduledSequence& row : step.sequences) {
    result.sequences.push_back({.id = row.id});
    if (row.sample) result.sequences.back().token = static_cast<TokenId>(row.id.value % 1000);
  }
  result.step = std::move(step);
  return result;
}

// Brings so many sequences to decoding. An executor that gives every step back, and a driver that
// uses its inputs again.
struct Steady {
  explicit Steady(int32_t sequences) : core(CoreOptions(sequences)) {
    for (int32_t i = 0; i < sequences; ++i) {
      inputs.submitted.push_back(
          {MakeRequest(static_cast<uint64_t>(i + 1), kPromptTokens, 1 << 20), 0});
    }
    Tick();
    while (step.tokens_total != sequences ||
           static_cast<int32_t>(step.sequences.size()) != sequences) {
      Answer();
      Tick();
    }
  }
  void Answer() { inputs.results.push_back(ResultOf(std::move(step))); }
  void Tick() { step = std::move(core.Tick(++now_ns, inputs).steps.at(0)); }

  EngineCore core;
  EngineInputs inputs;
  ScheduledStep step;
  int64_t now_ns = 0;
};

// A whole tick: apply 256 results, publish, 256 outputs, build the next step of 256 decodes.
void BM_Tick(benchmark::State& state) {
  Steady steady(static_cast<int32_t>(state.range(0)));
  for (int i = 0; i < 64; ++i) {
    steady.Answer();
    steady.Tick();
  }
  int64_t counted = 0;
  for (auto _ : state) {
    state.PauseTiming();
    steady.Answer();
    const int64_t before = allocations_of_thread;
    state.ResumeTiming();
    steady.Tick();
    state.PauseTiming();
    counted += allocations_of_thread - before;
    state.ResumeTiming();
  }
  state.counters["allocations"] =
      static_cast<double>(counted) / static_cast<double>(state.iterations());
}
BENCHMARK(BM_Tick)->Arg(64)->Arg(256)->Arg(1024)->Iterations(3000)->Unit(benchmark::kMicrosecond);

// Scheduling and KV alone: finish a step, confirm and publish its rows, build the next one.
void BM_ScheduleStep(benchmark::State& state) {
  const int32_t sequences = static_cast<int32_t>(state.range(0));
  const EngineCoreOptions options = CoreOptions(sequences);
  KvManager kv(options.kv);
  const FcfsPolicy policy;
  Scheduler scheduler({.sequences_max = sequences, .queue_sequences_max = sequences},
                      options.step_limits, policy, kv);
  std::vector<std::unique_ptr<Sequence>> all;
  for (int32_t i = 0; i < sequences; ++i) {
    // Lengths apart, so that block boundaries are spread over the steps.
    const uint64_t id = static_cast<uint64_t>(i + 1);
    all.push_back(std::make_unique<Sequence>(SequenceId{id}, 0,
                                             MakeRequest(id, kPromptTokens + i % 16, 1), 1 << 20));
    scheduler.TryAdd(*all.back());
  }
  ScheduledStep step;
  scheduler.BuildStep(step);
  const auto advance = [&] {
    for (const Scheduler::Row& row : scheduler.FinishOldestStep(step.step_id)) {
      scheduler.Confirm(row);
      if (row.sample) row.sequence->Append(7);
    }
    scheduler.BuildStep(step);
    kv.ClearEvents();
  };
  for (int i = 0; i < 300; ++i) advance();
  const int64_t before = allocations_of_thread;
  for (auto _ : state) advance();
  state.counters["allocations"] =
      static_cast<double>(allocations_of_thread - before) / static_cast<double>(state.iterations());
  state.counters["rows"] = static_cast<double>(step.sequences.size());
}
BENCHMARK(BM_ScheduleStep)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024)
    ->Iterations(2000)
    ->Unit(benchmark::kMicrosecond);

// A prompt of so many tokens, known as a whole: names computed and looked up, blocks taken and let
// go.
void BM_PrefixLookup(benchmark::State& state) {
  const int32_t tokens = static_cast<int32_t>(state.range(0));
  KvManager kv({.blocks = 8192, .tokens_per_block = kTokensPerBlock});
  const auto request = MakeRequest(1, tokens, 1);
  const BlockTableId first = kv.Open({"", true});
  kv.TryAdmit(first, request->prompt, 0);
  kv.Publish(first, request->prompt, tokens);
  kv.Close(first);
  for (auto _ : state) {
    const BlockTableId table = kv.Open({"", true});
    benchmark::DoNotOptimize(kv.TryAdmit(table, request->prompt, 0));
    kv.Close(table);
  }
}
BENCHMARK(BM_PrefixLookup)->Arg(1024)->Arg(32768)->Unit(benchmark::kMicrosecond);

// What the account of its time costs a sequence in each step.
void BM_LatencyLedger(benchmark::State& state) {
  const Sequence sequence(SequenceId{1}, 0, MakeRequest(1, kPromptTokens, 100), 1000);
  LatencyLedger ledger(0);
  int64_t now_ns = 0;
  SequenceOutput output;
  ledger.OnAdmitted(now_ns);
  for (auto _ : state) {
    ledger.OnStep(now_ns += 1000, 900, true);
    output.latency = ledger.UpTo(now_ns, sequence);
    benchmark::DoNotOptimize(output);
  }
}
BENCHMARK(BM_LatencyLedger);

}  // namespace
}  // namespace polysil

BENCHMARK_MAIN();

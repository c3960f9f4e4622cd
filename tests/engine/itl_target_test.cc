// The promise of an inter-token target: a long prompt beside running streams, on a device whose
// steps take a known, noisy time.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/core_harness.h"

namespace polysil {
namespace {

constexpr int32_t kStreams = 16;
constexpr int32_t kPromptTokens = 8192;

struct LongPromptRun {
  explicit LongPromptRun(int64_t itl_target_ns, const FakeCost& cost)
      : harness(CoreOptions(itl_target_ns), DeviceOptions(cost)) {}

  static StepLimits Limits() { return {.tokens_max = 256, .sequences_max = 64}; }
  static FakeDeviceOptions DeviceOptions(const FakeCost& cost) {
    return {.limits = Limits(),
            .blocks = 4096,
            .tokens_per_block = 16,
            .vocab_size = 1000,
            .cost = cost};
  }
  static EngineCoreOptions CoreOptions(int64_t itl_target_ns) {
    return {.itl_target_ns = itl_target_ns,
            .limits = {.vocab_size = 1000,
                       .context_tokens_max = 16'384,
                       .kv_tokens_max = 4096 * 16,
                       .sequences_max = 64},
            .step_limits = Limits(),
            .kv = {.blocks = 4096, .tokens_per_block = 16}};
  }

  RequestId Submit(int32_t prompt_tokens, int32_t tokens_max) {
    Request request{.sampling = {.tokens_max = tokens_max}};
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    const TokenId first = static_cast<TokenId>(random() % 900);
    std::iota(request.prompt.begin(), request.prompt.end(), 0);
    for (TokenId& id : request.prompt) id = (id + first) % 1000;
    return harness.Submit(std::move(request));
  }

  // Runs one step; gives how long it took.
  int64_t Step() {
    const double noise = 0.97 + 0.06 * static_cast<double>(random() >> 11) * 0x1p-53;
    const int64_t ns = harness.device().DurationNs(harness.in_flight().front(), noise);
    harness.AdvanceTo(harness.now_ns() + ns);
    harness.RunOldest({.slowness = noise});
    harness.Tick();
    return ns;
  }

  std::mt19937_64 random{11};
  CoreHarness harness;
};

int64_t Percentile99(std::vector<int64_t> values) {
  std::ranges::sort(values);
  return values[values.size() * 99 / 100];
}

struct Gaps {
  int64_t steady_ns;
  int64_t beside_prefill_ns;
  int64_t beside_prefill_mean_ns;
  int64_t prefill_steps;
};

// Each of the streams gets a token in every step, so the steps are their gaps.
Gaps Measure(int64_t itl_target_ns, const FakeCost& cost) {
  LongPromptRun run(itl_target_ns, cost);
  for (int32_t i = 0; i < kStreams; ++i) run.Submit(64, 4000);
  run.harness.Tick();
  for (int i = 0; i < 100; ++i) run.Step();
  std::vector<int64_t> steady;
  for (int i = 0; i < 300; ++i) steady.push_back(run.Step());
  const RequestId prompt = run.Submit(kPromptTokens, 1);
  // With the step that is on its way, which knows nothing of it.
  std::vector<int64_t> beside;
  while (!run.harness.streams().at(prompt)[0].finish && beside.size() < 4000) {
    beside.push_back(run.Step());
  }
  EXPECT_EQ(run.harness.streams().at(prompt)[0].finish, FinishReason::kLength);
  EXPECT_EQ(run.harness.problem(), "");
  const int64_t steps = static_cast<int64_t>(beside.size());
  const int64_t mean = std::accumulate(beside.begin(), beside.end(), int64_t{0}) / steps;
  return {Percentile99(steady), Percentile99(beside), mean, steps};
}

// Rows are nearly free (a device that waits for its weights), or all there is.
constexpr FakeCost kMemoryBound = {.step_ns = 10'000'000, .row_ns = 50'000, .position_ns = 100};
constexpr FakeCost kComputeBound = {.step_ns = 500'000, .row_ns = 500'000, .position_ns = 20};

// SCH-08: an 8k prompt beside 16 streams.
TEST(ItlTarget, HoldsBesideALongPrompt) {
  for (const FakeCost& cost : {kMemoryBound, kComputeBound}) {
    const int64_t steady_ns = Measure(0, cost).steady_ns;
    const Gaps gaps = Measure(steady_ns * 14 / 10, cost);
    EXPECT_LE(gaps.beside_prefill_ns, gaps.steady_ns * 3 / 2);
    // The time there is was used.
    EXPECT_GE(gaps.beside_prefill_mean_ns, gaps.steady_ns * 6 / 5);
  }
}

TEST(ItlTarget, WithoutOneStepsAreFull) {
  const Gaps gaps = Measure(0, kComputeBound);
  EXPECT_GT(gaps.beside_prefill_ns, gaps.steady_ns * 5);
  EXPECT_LE(gaps.prefill_steps, kPromptTokens / (256 - kStreams) + 3);
}

// Even a target that cannot be met leaves the prompt a third of the decodes' time.
TEST(ItlTarget, OneThatCannotBeMetDoesNotStopPrefill) {
  const Gaps gaps = Measure(1, kComputeBound);
  EXPECT_LE(gaps.beside_prefill_ns, gaps.steady_ns * 3 / 2);
  EXPECT_LE(gaps.prefill_steps, kPromptTokens / 4);
}

}  // namespace
}  // namespace polysil

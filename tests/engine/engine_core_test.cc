// What the scenarios do not reach: latencies, and results that make no sense.
#include "engine/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/core_harness.h"

namespace polysil {
namespace {

constexpr int64_t kMs = 1'000'000;

EngineCoreOptions Options() {
  return {.sequences_max = 8,
          .queue_max = 8,
          .limits = {.vocab_size = 1000,
                     .context_tokens_max = 100,
                     .kv_tokens_max = 256,
                     .sequences_max = 8},
          .kv = {.blocks = 64, .tokens_per_block = 4}};
}

SubmittedRequest Submitted(uint64_t id, int64_t arrived_ns, Request request) {
  request.id = RequestId{id};
  return {std::make_shared<const Request>(std::move(request)), arrived_ns};
}

uint64_t Observed(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), uint64_t{0});
}

StepResult ResultOf(const ScheduledStep& step, TokenId token) {
  StepResult result{.step_id = step.step_id, .duration_ns = 3 * kMs};
  for (const ScheduledSequence& row : step.sequences) {
    SequenceResult& each = result.sequences.emplace_back(SequenceResult{.id = row.id});
    if (row.sample) each.token = token;
  }
  return result;
}

EngineActions& Tick(EngineCore& core, int64_t now_ns, EngineInputs inputs) {
  return core.Tick(now_ns, inputs);
}

TEST(EngineCore, MeasuresFromArrivalToTokensToEnd) {
  EngineCore core(Options());
  EngineActions actions =
      Tick(core, 10 * kMs,
           {.submitted = {Submitted(1, 4 * kMs, {.prompt = {1}, .sampling = {.tokens_max = 3}})}});
  for (const int64_t now_ms : {104, 109, 124}) {
    ASSERT_EQ(actions.steps.size(), 1U);
    actions = Tick(core, now_ms * kMs, {.results = {ResultOf(actions.steps[0], 5)}});
  }
  const EngineStats stats = core.stats();
  EXPECT_EQ(Observed(stats.time_to_first_token_s), 1U);
  EXPECT_DOUBLE_EQ(stats.time_to_first_token_s.sum, 0.100);
  EXPECT_EQ(Observed(stats.inter_token_latency_s), 2U);
  EXPECT_DOUBLE_EQ(stats.inter_token_latency_s.sum, 0.020);
  EXPECT_EQ(Observed(stats.request_duration_s), 1U);
  EXPECT_DOUBLE_EQ(stats.request_duration_s.sum, 0.120);
  EXPECT_EQ(Observed(stats.step_duration_s), 3U);
  EXPECT_DOUBLE_EQ(stats.step_duration_s.sum, 0.009);
}

TEST(EngineCore, SaysWhenToWakeIt) {
  EngineCore core(Options());
  EXPECT_EQ(Tick(core, 0, {}).wake_ns, kNever);
  Tick(core, 0,
       {.submitted = {Submitted(1, 0, {.prompt = {1}, .deadline_ns = 70}),
                      Submitted(2, 0, {.prompt = {1}, .deadline_ns = 50})}});
  EXPECT_EQ(Tick(core, 1, {}).wake_ns, 50);
  EXPECT_EQ(Tick(core, 50, {}).wake_ns, 70);
  EXPECT_EQ(Tick(core, 51, {.drain_deadline_ns = 60}).wake_ns, 60);
  EXPECT_EQ(Tick(core, 60, {}).wake_ns, kNever);
  EXPECT_EQ(core.sequences_live(), 0);
}

// An executor that answers nonsense fails the step, not the engine.
TEST(EngineCore, ResultsThatDoNotMatchFailTheirRequests) {
  const std::vector<std::function<void(StepResult&)>> spoil = {
      [](StepResult& r) { r.sequences.pop_back(); },
      [](StepResult& r) { r.sequences.push_back({.id = SequenceId{77}}); },
      [](StepResult& r) { std::swap(r.sequences[0], r.sequences[1]); },
      [](StepResult& r) { r.sequences[0].token.reset(); },
      [](StepResult& r) { r.sequences[0].token = -1; },
      [](StepResult& r) { r.sequences[0].token = 1000; }};
  for (size_t i = 0; i < spoil.size(); ++i) {
    EngineCore core(Options());
    EngineActions actions = Tick(core, 0,
                                 {.submitted = {Submitted(1, 0, {.prompt = {1, 2, 3, 4, 5}}),
                                                Submitted(2, 0, {.prompt = {6, 7}})}});
    StepResult result = ResultOf(actions.steps[0], 5);
    spoil[i](result);
    actions = Tick(core, 1, {.results = {result}});
    ASSERT_FALSE(actions.outputs.empty());
    EXPECT_EQ(actions.outputs[0].finish, FinishReason::kError) << i;
    EXPECT_EQ(actions.outputs[0].status.code(), StatusCode::kInternal) << i;
    EXPECT_EQ(core.stats().kv_blocks_cached, 0) << i;
    EXPECT_TRUE(core.CheckIntegrity().ok());
  }
}

TEST(EngineCore, CountsFailedStepsUntilOneSucceeds) {
  EngineCore core(Options());
  const auto run = [&](uint64_t id, const Status& status) {
    EngineActions actions = Tick(core, 0, {.submitted = {Submitted(id, 0, {.prompt = {1, 2}})}});
    StepResult result = ResultOf(actions.steps[0], 5);
    result.status = status;
    Tick(core, 0, {.results = {result}});
  };
  run(1, Internal("no"));
  run(2, Unavailable("gone"));
  EXPECT_EQ(core.step_failures(), 2);
  run(3, OkStatus());
  EXPECT_EQ(core.step_failures(), 0);
}

// What came back is kept for its memory alone.
TEST(EngineCore, ForgetsARequestWhenItHasEnded) {
  EngineCore core(Options());
  EngineInputs inputs;
  inputs.submitted.push_back(Submitted(1, 0, {.prompt = {1, 2}, .sampling = {.tokens_max = 1}}));
  const std::weak_ptr<const Request> request = inputs.submitted[0].request;
  ScheduledStep step = std::move(core.Tick(0, inputs).steps.at(0));
  ASSERT_EQ(step.started.size(), 1U);
  StepResult result = ResultOf(step, 5);
  result.step = std::move(step);
  inputs.results.push_back(std::move(result));
  EXPECT_EQ(core.Tick(0, inputs).outputs.at(0).finish, FinishReason::kLength);
  EXPECT_TRUE(inputs.results.empty());
  EXPECT_TRUE(request.expired());
}

std::vector<TokenId> RunAlone(CoreHarness& harness, const Request& request) {
  const RequestId id = harness.Submit(request);
  harness.Tick();
  EXPECT_TRUE(harness.RunToEnd(1000));
  EXPECT_EQ(harness.problem(), "");
  return harness.streams().at(id)[0].tokens;
}

// PFX-04: whatever ran before, a prompt gets the tokens it gets without a cache. Tails part from a
// shared start at every offset.
TEST(EngineCore, PrefixHitsNeverChangeTokens) {
  CoreHarness harness(Options(), {.blocks = 64, .tokens_per_block = 4});
  std::vector<TokenId> shared(40);
  std::iota(shared.begin(), shared.end(), 100);
  for (int32_t round = 0; round < 4; ++round) {
    for (size_t offset = 1; offset <= 33; ++offset) {
      Request request{.prompt = {shared.begin(), shared.begin() + static_cast<ptrdiff_t>(offset)},
                      .sampling = {.tokens_max = 6}};
      for (size_t i = 0; i <= offset % 3; ++i) request.prompt.push_back(static_cast<TokenId>(i));
      EXPECT_EQ(RunAlone(harness, request), SoloTokens(request, 0, 1000, 100));
    }
  }
  EXPECT_GT(harness.core().stats().prefix_cache_hit_tokens, 1500U);
}

// PFX-08: the pool is always full of prompts seen once; one that comes again and again is answered
// alike.
TEST(EngineCore, AnEchoInAFullPoolNeverChanges) {
  EngineCoreOptions options = Options();
  options.kv.blocks = 12;
  options.limits.kv_tokens_max = 48;
  CoreHarness harness(options, {.blocks = 12, .tokens_per_block = 4});
  const Request echo{.prompt = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, .sampling = {.tokens_max = 8}};
  const std::vector<TokenId> expected = SoloTokens(echo, 0, 1000, 49);
  for (int32_t round = 0; round < 500; ++round) {
    for (int32_t i = 0; i < 2; ++i) {
      std::vector<TokenId> prompt(static_cast<size_t>(10 + round % 17), round + i * 300);
      harness.Submit({.prompt = prompt, .sampling = {.tokens_max = 5}});
    }
    EXPECT_EQ(RunAlone(harness, echo), expected) << "round " << round;
  }
  EXPECT_EQ(harness.core().stats().requests_length, 1500U);
}

TEST(EngineCore, SameInputsGiveSameActions) {
  const auto trace = [] {
    CoreHarness harness(Options(), {.blocks = 64, .tokens_per_block = 4});
    std::string text;
    for (int32_t i = 0; i < 20; ++i) {
      std::vector<TokenId> prompt(static_cast<size_t>(i * 7 % 30 + 1), i % 3);
      harness.Submit({.prompt = prompt, .sampling = {.tokens_max = 9}, .priority = i % 2});
      harness.RunOldest();
      harness.Tick();
      for (const ScheduledStep& step : harness.actions().steps) {
        for (const ScheduledSequence& row : step.sequences) {
          text += fmt::format("{}:{}+{} ", row.id.value, row.tokens_computed, row.tokens);
          for (const BlockId block : step.BlocksNew(row)) text += fmt::format("{} ", block.value);
        }
      }
      for (const SequenceOutput& output : harness.actions().outputs) {
        text += fmt::format("={} ", output.request.value);
      }
    }
    EXPECT_EQ(harness.problem(), "");
    return text;
  };
  const std::string first = trace();
  EXPECT_GT(first.size(), 500U);
  EXPECT_EQ(first, trace());
}

TEST(EngineCoreDeathTest, TimeAndStepsDoNotGoBack) {
  EngineCore core(Options());
  Tick(core, 100, {});
  EXPECT_DEATH(Tick(core, 99, {}), "time went from 100 back to 99");
  EXPECT_DEATH(Tick(core, 100, {.results = {StepResult{.step_id = 1}}}), "none is in flight");
}

TEST(Histogram, CountsUpToEachBound) {
  Histogram histogram{.bounds = {1.0, 2.0}, .counts = {0, 0, 0}};
  for (const double value : {0.0, 1.0, 1.5, 2.0, 2.5, 100.0}) histogram.Observe(value);
  EXPECT_THAT(histogram.counts, testing::ElementsAre(2U, 2U, 2U));
  EXPECT_DOUBLE_EQ(histogram.sum, 107.0);
}

}  // namespace
}  // namespace polysil

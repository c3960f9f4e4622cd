// Where a sequence's time goes, by hand. That the parts sum to its age, in every output of every
// scenario and random run, is CoreHarness's to check.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/core_harness.h"

namespace polysil {
namespace {

constexpr int64_t kMs = 1'000'000;

EngineCoreOptions LatencyCore(int32_t blocks) {
  return {.sequences_max = 4,
          .queue_max = 4,
          .limits = {.vocab_size = 100,
                     .context_tokens_max = 64,
                     .kv_tokens_max = int64_t{blocks} * 4,
                     .sequences_max = 4},
          .step_limits = {.tokens_max = 8},
          .kv = {.blocks = blocks, .tokens_per_block = 4}};
}

FakeDeviceOptions LatencyDevice(int32_t blocks) {
  return {.limits = {.tokens_max = 8}, .blocks = blocks, .tokens_per_block = 4, .vocab_size = 100};
}

// Its steps take a millisecond each on the device.
struct LatencyRun {
  explicit LatencyRun(int32_t blocks = 32) : harness(LatencyCore(blocks), LatencyDevice(blocks)) {}
  ~LatencyRun() { EXPECT_EQ(harness.problem(), ""); }

  RequestId Submit(int32_t prompt_tokens, int32_t tokens_max, int64_t deadline_ns = 0) {
    Request request{.sampling = {.tokens_max = tokens_max}, .deadline_ns = deadline_ns};
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    std::iota(request.prompt.begin(), request.prompt.end(), ++submitted);
    return harness.Submit(std::move(request));
  }
  void TickAt(int64_t ns) {
    harness.AdvanceTo(ns);
    harness.Tick();
  }
  void RunStepUntil(int64_t ns, const FakeFaults& faults = {}) {
    ASSERT_TRUE(harness.RunOldest(faults));
    TickAt(ns);
  }
  const SequenceLatency& Of(RequestId id) const { return harness.streams().at(id)[0].latency; }

  CoreHarness harness;
  TokenId submitted = 0;
};

TEST(Latency, EachPartIsWhatPassedThere) {
  LatencyRun run;
  const RequestId id = run.Submit(12, 3);
  run.TickAt(5 * kMs);
  run.RunStepUntil(7 * kMs);  // 8 of the prompt's tokens: 1 ms of 2
  run.RunStepUntil(8 * kMs);  // the rest, and the first token
  EXPECT_EQ(run.Of(id).queue_ns, 5 * kMs);
  EXPECT_EQ(run.Of(id).prefill_ns, 2 * kMs);
  EXPECT_EQ(run.Of(id).wait_ns, 1 * kMs);
  EXPECT_EQ(run.Of(id).prefill_steps, 2);
  run.RunStepUntil(12 * kMs);
  run.RunStepUntil(12 * kMs + kMs / 2);  // it says 1 ms, and half has passed: a clock of its own
  const SequenceLatency& end = run.Of(id);
  EXPECT_EQ(run.harness.streams().at(id)[0].finish, FinishReason::kLength);
  EXPECT_EQ(end.queue_ns, 5 * kMs);
  EXPECT_EQ(end.prefill_ns, 2 * kMs);
  EXPECT_EQ(end.decode_ns, 1 * kMs + kMs / 2);
  EXPECT_EQ(end.wait_ns, 4 * kMs);
  EXPECT_EQ(end.preempted_ns, 0);
  EXPECT_EQ(end.prefill_steps, 2);
  EXPECT_EQ(end.decode_steps, 2);
}

TEST(Latency, OneThatIsCancelledBelongsWhereItIs) {
  LatencyRun run;
  const RequestId in_step = run.Submit(8, 3);
  run.TickAt(1 * kMs);
  const RequestId in_queue = run.Submit(8, 3);  // all rows of the next step are its own
  run.harness.Cancel(in_step);
  run.harness.Cancel(in_queue);
  run.TickAt(4 * kMs);
  EXPECT_EQ(run.Of(in_step).queue_ns, 1 * kMs);
  EXPECT_EQ(run.Of(in_step).prefill_ns, 3 * kMs);
  EXPECT_EQ(run.Of(in_queue).queue_ns, 3 * kMs);
  EXPECT_TRUE(run.harness.RunToEnd(10));
}

TEST(Latency, OneThatFailsHasItsStepsAsWell) {
  LatencyRun run;
  const RequestId id = run.Submit(8, 3);
  run.TickAt(0);
  run.RunStepUntil(3 * kMs, {.step = Internal("broken")});
  EXPECT_EQ(run.harness.streams().at(id)[0].finish, FinishReason::kError);
  EXPECT_EQ(run.Of(id).prefill_ns, 1 * kMs);
  EXPECT_EQ(run.Of(id).wait_ns, 2 * kMs);
}

TEST(Latency, OneThatIsRefusedHasWaited) {
  LatencyRun run;
  const RequestId id = run.Submit(64, 3);  // beyond the context
  run.TickAt(2 * kMs);
  EXPECT_EQ(run.harness.streams().at(id)[0].finish, FinishReason::kError);
  EXPECT_EQ(run.Of(id).queue_ns, 2 * kMs);
}

TEST(Latency, OneThatIsPreemptedKnowsForHowLong) {
  LatencyRun run(8);
  const RequestId first = run.Submit(8, 20);
  const RequestId second = run.Submit(8, 20);
  int64_t now_ns = 0;
  run.TickAt(now_ns);
  int64_t preempted_at_ns = 0;
  int64_t resumed_at_ns = 0;
  for (int32_t i = 0; i < 100 && run.harness.core().sequences_live() > 0; ++i) {
    const int64_t stepped_ns = now_ns;
    run.RunStepUntil(now_ns += kMs);
    if (run.harness.core().stats().preemptions > 0 && preempted_at_ns == 0) {
      preempted_at_ns = now_ns;
    }
    // The first is at its end before the second finds blocks again.
    if (run.harness.streams().at(first)[0].finish && resumed_at_ns == 0) resumed_at_ns = now_ns;
    ASSERT_GT(now_ns, stepped_ns);
  }
  const SequenceLatency& latency = run.Of(second);
  EXPECT_EQ(run.harness.streams().at(second)[0].finish, FinishReason::kLength);
  ASSERT_GT(preempted_at_ns, 0);
  EXPECT_EQ(latency.preemptions, 1);
  EXPECT_EQ(latency.preempted_ns, resumed_at_ns - preempted_at_ns);
  EXPECT_EQ(run.Of(first).preempted_ns, 0);
  // All the rest it ran, but for the first step, which was the first one's.
  EXPECT_EQ(latency.prefill_ns + latency.decode_ns,
            now_ns - latency.preempted_ns - latency.queue_ns - latency.wait_ns);
}

TEST(Latency, WithTwoStepsInFlightTheOneBeforeIsWaitedFor) {
  EngineCoreOptions options = LatencyCore(32);
  options.step_limits.steps_in_flight_max = 2;
  FakeDeviceOptions device = LatencyDevice(32);
  device.limits.steps_in_flight_max = 2;
  CoreHarness harness(options, device);
  Request request{.sampling = {.tokens_max = 3}};
  request.prompt = {1, 2, 3, 4};
  const RequestId id = harness.Submit(request);
  harness.Tick();
  ASSERT_EQ(harness.in_flight().size(), 2U);
  for (int64_t ms = 1; ms <= 3; ++ms) {
    harness.AdvanceTo(ms * kMs);
    ASSERT_TRUE(harness.RunOldest());
    harness.Tick();
  }
  const SequenceLatency& latency = harness.streams().at(id)[0].latency;
  EXPECT_EQ(harness.streams().at(id)[0].finish, FinishReason::kLength);
  EXPECT_EQ(latency.prefill_ns, 1 * kMs);
  EXPECT_EQ(latency.decode_ns, 2 * kMs);
  EXPECT_EQ(latency.wait_ns, 0);
  EXPECT_EQ(harness.problem(), "");
}

}  // namespace
}  // namespace polysil

// OPS-03: readiness tells whether the engine moves, whatever is stuck.
#include <gtest/gtest.h>

#include <latch>

#include "engine/engine_fixture.h"

namespace polysil {
namespace {

TEST(EngineReadiness, IsNotReadyWhileAStepDoesNotComeBack) {
  Parts parts({.stall_ns = 2 * kSecond}, true);
  const auto sink = parts.Submit(Prompt(4, 2));
  parts.executor->WaitForStep();
  parts.clock.Advance(2 * kSecond);
  EXPECT_TRUE(parts.engine->Readiness().ready);
  parts.clock.Advance(1);
  EXPECT_FALSE(parts.engine->Readiness().ready);
  EXPECT_NE(parts.engine->Readiness().reason.find("no progress with a step for more than 2 s"),
            std::string::npos);
  const auto refused = parts.engine->Submit(Prompt(4, 2), std::make_shared<Collector>());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  // It comes back after all.
  parts.executor->RunOne();
  sink->WaitForTokens(1);
  WaitUntil([&] { return parts.engine->Readiness().ready; });
  parts.executor->RunOne();
  sink->WaitForEnd();
  parts.ExpectNothingLeft();
  parts.clock.Advance(1000 * kSecond);
  // Idle is not stalled, as soon as the thread is.
  WaitUntil([&] { return parts.engine->Readiness().ready; });
}

// A step that takes minutes is no stall as long as the executor says that it moves.
TEST(EngineReadiness, IsReadyWhileALongStepMoves) {
  Parts parts({}, true);
  const auto sink = parts.Submit(Prompt(4, 1));
  parts.executor->WaitForStep();
  for (int32_t i = 0; i < 300; ++i) {
    parts.clock.Advance(kSecond);
    parts.executor->Beat();
    // The engine's thread may still be on its way out of the tick.
    WaitUntil([&] { return parts.engine->Readiness().ready; });
  }
  // Without a word for two seconds it is stuck, and when it moves again it is not.
  parts.clock.Advance(2 * kSecond);
  EXPECT_FALSE(parts.engine->Readiness().ready);
  parts.executor->Beat();
  EXPECT_TRUE(parts.engine->Readiness().ready);
  parts.executor->RunOne();
  sink->WaitForEnd();
  parts.ExpectNothingLeft();
  // What it said last does not count against it when it has nothing to do.
  parts.clock.Advance(1000 * kSecond);
  WaitUntil([&] { return parts.engine->Readiness().ready; });
}

// OPS-07: the clock of the engine may stand still or leap (a machine that was suspended), though it
// never goes back. Nothing times out that has no deadline, and readiness is as it was after the
// next sign of life.
TEST(EngineReadiness, ALeapOfTheClockPasses) {
  Parts parts({}, true);
  parts.clock.Advance(3600 * kSecond);
  EXPECT_TRUE(parts.engine->Readiness().ready);
  const auto sink = parts.Submit(Prompt(4, 3));
  parts.executor->RunOne();
  sink->WaitForTokens(1);
  parts.executor->WaitForStep();
  parts.clock.Advance(3600 * kSecond);
  EXPECT_FALSE(parts.engine->Readiness().ready);
  parts.executor->RunOne();
  sink->WaitForTokens(2);
  WaitUntil([&] { return parts.engine->Readiness().ready; });
  // Standing still: no time passes between steps.
  parts.executor->RunOne();
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kLength);
  parts.ExpectNothingLeft();
  EXPECT_GE(parts.engine->RetryAfterSeconds(), 1);
  EXPECT_EQ(parts.engine->Stats().requests_deadline, 0U);
}

// An executor whose Submit blocks, and with it the engine thread.
class BlockingExecutor final : public Executor {
 public:
  const StepLimits& limits() const override { return limits_; }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return 16; }
  const NumericClass& numeric_class() const override { return numeric_class_; }
  void Submit(ScheduledStep) override {
    inside.count_down();
    let_go.wait();
  }
  std::optional<StepResult> Poll() override { return std::nullopt; }
  void SetNotify(std::function<void()>) override {}
  void SetHeartbeat(std::function<void()>) override {}

  std::latch inside{1};
  std::latch let_go{1};

 private:
  StepLimits limits_;
  KvLayout layout_;
  NumericClass numeric_class_{"blocking"};
};

TEST(EngineReadiness, StuckEngineThreadShows) {
  ManualClock clock;
  auto owned = std::make_unique<BlockingExecutor>();
  BlockingExecutor* executor = owned.get();
  auto engine = *EngineThread::Create({.stall_ns = kSecond}, kModel, std::move(owned), clock);
  auto sink = std::make_shared<Collector>();
  const StatusOr<RequestId> id = engine->Submit(Prompt(4, 2), sink);
  ASSERT_TRUE(id.ok());
  executor->inside.wait();
  // All of these answer although the thread is stuck.
  engine->Cancel(*id);
  EXPECT_TRUE(engine->Readiness().ready);
  clock.Advance(kSecond + 1);
  EXPECT_FALSE(engine->Readiness().ready);
  EXPECT_NE(engine->Readiness().reason, "");
  EXPECT_EQ(engine->Stats().steps, 0U);
  EXPECT_GE(engine->RetryAfterSeconds(), 1);
  EXPECT_EQ(engine->Submit(Prompt(4, 2), sink).status().code(), StatusCode::kUnavailable);
  executor->let_go.count_down();
  sink->WaitForEnd();
}

TEST(EngineReadiness, IsNotReadyWhileStepsFail) {
  Parts parts;
  parts.executor->FailSteps(Unavailable("the device is gone"));
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(parts.engine->Readiness().ready);
    const auto sink = parts.Submit(Prompt(4, 2));
    sink->WaitForEnd();
    EXPECT_EQ(sink->finish(), FinishReason::kError);
    EXPECT_EQ(Message(sink->status()), "the device is gone");
    ASSERT_TRUE(parts.engine->WaitIdle(kLong));
  }
  EXPECT_FALSE(parts.engine->Readiness().ready);
  EXPECT_EQ(parts.engine->Readiness().reason, "the last 3 steps have failed");
  // One request at a time may try.
  parts.executor->FailSteps(OkStatus());
  const auto sink = parts.Submit(Prompt(4, 2));
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kLength);
  EXPECT_TRUE(parts.engine->Readiness().ready);
}

TEST(EngineReadiness, ASlowSinkHoldsUpNeitherEngineNorMemory) {
  Parts parts({.stall_ns = kSecond}, true);
  auto stuck = std::make_shared<StuckSink>();
  ASSERT_TRUE(parts.engine->Submit(Prompt(4, 100), stuck).ok());
  parts.executor->RunOne();
  stuck->inside.wait();
  // The engine goes on to the end of this and of another request.
  const auto other = parts.Submit(Prompt(7, 30, 5));
  for (int32_t i = 1; i < 100; ++i) parts.executor->RunOne();
  WaitUntil([&] { return parts.engine->Stats().requests_length == 2; });
  EXPECT_EQ(parts.engine->Stats().generation_tokens, 130U);
  EXPECT_EQ(other->outputs(), 0);
  parts.clock.Advance(kSecond + 1);
  EXPECT_NE(parts.engine->Readiness().reason.find("sink has blocked"), std::string::npos);
  stuck->let_go.count_down();
  other->WaitForEnd();
  WaitUntil([&] { return parts.engine->Readiness().ready; });
  parts.ExpectNothingLeft();
  // What had piled up came as one.
  EXPECT_EQ(stuck->outputs, 2);
  EXPECT_EQ(stuck->tokens, 100U);
  EXPECT_EQ(other->outputs(), 1);
  EXPECT_EQ(other->tokens(), SoloTokens(Prompt(7, 30, 5), 0, 1000, 200));
}

}  // namespace
}  // namespace polysil

// What the scenarios cannot reach: the scheduler's own answers and its policy seam. How it
// schedules is told in tests/scenarios.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <memory>

#include "sched/fcfs_policy.h"

namespace polysil {
namespace {

std::unique_ptr<Sequence> MakeSequence(uint64_t id, int32_t prompt_tokens, int32_t priority = 0) {
  auto request = std::make_shared<const Request>(Request{
      .prompt = std::vector<TokenId>(static_cast<size_t>(prompt_tokens), static_cast<TokenId>(id)),
      .priority = priority});
  return std::make_unique<Sequence>(SequenceId{id}, 0, request, prompt_tokens + 20);
}

bool BuildsStep(Scheduler& scheduler) {
  ScheduledStep step;
  return scheduler.BuildStep(step);
}

ScheduledStep Build(Scheduler& scheduler) {
  ScheduledStep step;
  EXPECT_TRUE(scheduler.BuildStep(step));
  return step;
}

class SchedulerTest : public testing::Test {
 protected:
  KvManager kv_{{.blocks = 16, .tokens_per_block = 4}};
  FcfsPolicy policy_;
};

TEST_F(SchedulerTest, RefusesWhenTheQueueIsFull) {
  Scheduler scheduler({.sequences_max = 2, .queue_sequences_max = 1}, {}, policy_, kv_);
  const auto a = MakeSequence(1, 4);
  const auto b = MakeSequence(2, 4);
  EXPECT_TRUE(scheduler.TryAdd(*a));
  EXPECT_FALSE(scheduler.TryAdd(*b));
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST_F(SchedulerTest, SaysWhoEndedOnceAndOnlyIfTheExecutorKnowsThem) {
  Scheduler scheduler({}, {}, policy_, kv_);
  const auto a = MakeSequence(1, 4);
  const auto b = MakeSequence(2, 4);
  const auto c = MakeSequence(3, 4);
  scheduler.TryAdd(*a);
  const ScheduledStep first = Build(scheduler);
  ASSERT_EQ(first.started.size(), 1U);
  EXPECT_EQ(first.started[0].request, a->request());
  scheduler.TryAdd(*b);
  scheduler.Finish(*b);
  scheduler.Finish(*a);
  scheduler.FinishOldestStep(first.step_id);
  EXPECT_FALSE(BuildsStep(scheduler));
  scheduler.TryAdd(*c);
  const ScheduledStep second = Build(scheduler);
  EXPECT_EQ(second.step_id, first.step_id + 1);
  EXPECT_EQ(second.ended, std::vector<SequenceId>{SequenceId{1}});
  EXPECT_TRUE(scheduler.CheckIntegrity().ok());
}

TEST_F(SchedulerTest, SendsBlocksAsADifference) {
  Scheduler scheduler({}, {.tokens_max = 3}, policy_, kv_);
  const auto a = MakeSequence(1, 8);
  scheduler.TryAdd(*a);
  const auto run = [&](ScheduledStep step) {
    const auto rows = scheduler.FinishOldestStep(step.step_id);
    scheduler.Confirm(rows[0]);
    if (rows[0].sample) a->Append(9);
    EXPECT_EQ(std::ssize(step.blocks_new), step.sequences[0].blocks_new);
    return step.sequences[0];
  };
  const ScheduledSequence first = run(Build(scheduler));
  EXPECT_TRUE(first.blocks_replaced);
  EXPECT_EQ(first.blocks_new, 2);
  for (int32_t i = 0; i < 2; ++i) {
    const ScheduledSequence more = run(Build(scheduler));
    EXPECT_FALSE(more.blocks_replaced);
    EXPECT_EQ(more.blocks_new, 0);
  }
  const ScheduledSequence decode = run(Build(scheduler));
  EXPECT_EQ(decode.tokens_computed, 8);
  EXPECT_EQ(decode.blocks_new, 1);
}

// The order is the policy's alone.
class LastComeFirstServed final : public SchedulerPolicy {
 public:
  bool IsBefore(const SequenceStanding& left, const SequenceStanding& right) const override {
    return left.id > right.id;
  }
};

TEST_F(SchedulerTest, FollowsItsPolicy) {
  const LastComeFirstServed policy;
  Scheduler scheduler({}, {.tokens_max = 6}, policy, kv_);
  const auto a = MakeSequence(1, 4);
  const auto b = MakeSequence(2, 4);
  scheduler.TryAdd(*a);
  scheduler.TryAdd(*b);
  const ScheduledStep step = Build(scheduler);
  ASSERT_EQ(step.sequences.size(), 2U);
  EXPECT_EQ(step.sequences[0].id, SequenceId{2});
  EXPECT_EQ(step.sequences[1].tokens, 2);
}

TEST(FcfsPolicy, PriorityThenArrival) {
  const FcfsPolicy policy;
  EXPECT_TRUE(policy.IsBefore({SequenceId{5}, 1}, {SequenceId{1}, 0}));
  EXPECT_FALSE(policy.IsBefore({SequenceId{1}, 0}, {SequenceId{5}, 1}));
  EXPECT_TRUE(policy.IsBefore({SequenceId{1}, 0}, {SequenceId{2}, 0}));
  EXPECT_FALSE(policy.IsBefore({SequenceId{1}, 0}, {SequenceId{1}, 0}));
}

TEST_F(SchedulerTest, StepsComeBackInOrder) {
  Scheduler scheduler({}, {.tokens_max = 2, .steps_in_flight_max = 2}, policy_, kv_);
  const auto a = MakeSequence(1, 8);
  scheduler.TryAdd(*a);
  EXPECT_TRUE(BuildsStep(scheduler));
  EXPECT_TRUE(BuildsStep(scheduler));
  EXPECT_FALSE(BuildsStep(scheduler)) << "two are the most";
  EXPECT_DEATH(scheduler.FinishOldestStep(2), "before step 1");
  scheduler.FinishOldestStep(1);
  scheduler.FinishOldestStep(2);
  EXPECT_DEATH(scheduler.FinishOldestStep(3), "none is in flight");
}

}  // namespace
}  // namespace polysil

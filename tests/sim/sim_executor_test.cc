// SimExecutor names each thing that an engine may get wrong; what is right passes.
#include "sim/sim_executor.h"

#include <gtest/gtest.h>

#include <utility>

#include "sim/sim_clock.h"

namespace polysil {
namespace {

constexpr int32_t kVocab = 100;

class SimExecutorTest : public testing::Test {
 protected:
  SimExecutorTest()
      : executor_(
            {.limits = {.tokens_max = 16,
                        .sequences_max = 4,
                        .prefill_sequences_max = 1,
                        .token_buckets = {4, 16},
                        .steps_in_flight_max = 2},
             .blocks = 8,
             .tokens_per_block = 4,
             .vocab_size = kVocab,
             .price = {.step_ns = 100, .token_ns = 10, .context_token_ns = 1, .sequence_ns = 0},
             .give_up_ns = 5000},
            clock_, [this](const ScheduledStep&) { return std::exchange(fault_, {}); }) {}

  static SequenceStart Start(uint64_t id, std::vector<TokenId> prompt) {
    Request request{.id = RequestId{id}, .prompt = std::move(prompt)};
    request.sampling.seed = id;
    return {.id = SequenceId{id}, .request = std::make_shared<const Request>(std::move(request))};
  }
  struct RowOfStep {
    ScheduledSequence scheduled;
    std::vector<BlockId> blocks;
  };
  static RowOfStep Row(uint64_t id, int32_t begin, int32_t end, const std::vector<int32_t>& blocks,
                       bool sample) {
    RowOfStep row{.scheduled = {.id = SequenceId{id},
                                .tokens_computed = begin,
                                .tokens = end - begin,
                                .blocks_replaced = begin == 0,
                                .sample = sample}};
    for (const int32_t block : blocks) row.blocks.push_back(BlockId{block});
    return row;
  }
  void Submit(std::vector<SequenceStart> started, const std::vector<RowOfStep>& rows,
              std::vector<SequenceId> ended = {}) {
    ScheduledStep step{
        .step_id = ++steps_, .started = std::move(started), .ended = std::move(ended)};
    for (const RowOfStep& row : rows) step.Add(row.scheduled, row.blocks);
    executor_.Submit(std::move(step));
  }
  StepResult Finish() {
    clock_.MoveTo(executor_.next_result_ns().value());
    return executor_.Poll().value();
  }
  std::string check() const { return executor_.violation() ? executor_.violation()->check : ""; }

  SimClock clock_;
  StepFault fault_;
  SimExecutor executor_;
  int64_t steps_ = 0;
};

constexpr const char* kLimitsKept = "limits kept";
constexpr const char* kTold = "steps tell the executor what it needs";
constexpr const char* kReads = "what is read was written";
constexpr const char* kWrites = "no block is written by two";

TEST_F(SimExecutorTest, RunsWhatIsRightAndTakesItsTime) {
  Submit({Start(1, {5, 6, 7, 8, 9})}, {Row(1, 0, 5, {2, 3}, true)});
  // 5 rows are padded to 16: 100 + 16 * 10 + 5 positions.
  EXPECT_EQ(executor_.next_result_ns(), 265);
  EXPECT_FALSE(executor_.Poll().has_value());
  const StepResult first = Finish();
  EXPECT_EQ(first.duration_ns, 265);
  EXPECT_EQ(first.sequences.at(0).token, DrawToken(1, 0, 5, kVocab));
  // Another starts with the first block of it.
  Submit({Start(2, {5, 6, 7, 8, 1})}, {Row(1, 5, 6, {}, true)});
  Finish();
  RowOfStep hit = Row(2, 4, 5, {2, 4}, true);
  hit.scheduled.blocks_replaced = true;
  Submit({}, {hit}, {SequenceId{1}});
  EXPECT_EQ(Finish().sequences.at(0).token, DrawToken(2, 0, 5, kVocab));
  EXPECT_EQ(check(), "");
  EXPECT_EQ(executor_.counts().tokens, 7);
  EXPECT_EQ(executor_.counts().tokens_padding, 11 + 3 + 3);
}

TEST_F(SimExecutorTest, ATokenDependsOnSeedIndexAndPositionAlone) {
  EXPECT_NE(DrawToken(1, 0, 5, 1 << 30), DrawToken(2, 0, 5, 1 << 30));
  EXPECT_NE(DrawToken(1, 0, 5, 1 << 30), DrawToken(1, 1, 5, 1 << 30));
  EXPECT_NE(DrawToken(1, 0, 5, 1 << 30), DrawToken(1, 0, 6, 1 << 30));
}

TEST_F(SimExecutorTest, NamesABrokenLimit) {
  Submit({Start(1, {1, 2}), Start(2, {1, 2})}, {Row(1, 0, 2, {0}, true), Row(2, 0, 2, {1}, true)});
  EXPECT_EQ(check(), kLimitsKept);
}

TEST_F(SimExecutorTest, NamesAStepTooManyInFlight) {
  Submit({Start(1, {1})}, {Row(1, 0, 1, {0}, true)});
  Submit({}, {Row(1, 1, 2, {}, true)});
  EXPECT_EQ(check(), "");
  Submit({}, {Row(1, 2, 3, {}, true)});
  EXPECT_EQ(check(), kLimitsKept);
}

TEST_F(SimExecutorTest, NamesASequenceThatWasNotStarted) {
  Submit({}, {Row(1, 0, 1, {0}, true)});
  EXPECT_EQ(check(), kTold);
}

TEST_F(SimExecutorTest, NamesAWrongPosition) {
  Submit({Start(1, {1, 2, 3})}, {Row(1, 0, 2, {0}, false)});
  Finish();
  Submit({}, {Row(1, 1, 3, {}, true)});
  EXPECT_EQ(check(), kTold);
}

TEST_F(SimExecutorTest, NamesAMissingBlock) {
  Submit({Start(1, {1, 2, 3, 4, 5})}, {Row(1, 0, 5, {0}, true)});
  EXPECT_EQ(check(), kTold);
}

TEST_F(SimExecutorTest, NamesAMissingSample) {
  Submit({Start(1, {1, 2})}, {Row(1, 0, 2, {0}, false)});
  EXPECT_EQ(check(), kTold);
}

TEST_F(SimExecutorTest, NamesABlockThatTwoWrite) {
  Submit({Start(1, {1, 2}), Start(2, {3})}, {Row(1, 0, 2, {0}, true), Row(2, 0, 1, {0}, true)});
  EXPECT_EQ(check(), kWrites);
}

TEST_F(SimExecutorTest, NamesABlockOverwrittenUnderItsReader) {
  Submit({Start(1, {1, 2})}, {Row(1, 0, 2, {0}, true)});
  Finish();
  Submit({Start(2, {3})}, {Row(2, 0, 1, {0}, true)});
  Finish();
  Submit({}, {Row(1, 2, 3, {}, true)});
  EXPECT_EQ(check(), kReads);
}

TEST_F(SimExecutorTest, NamesAPrefixThatIsAnother) {
  Submit({Start(1, {1, 2, 3, 4, 5})}, {Row(1, 0, 5, {0, 1}, true)});
  Finish();
  RowOfStep hit = Row(2, 4, 5, {0, 2}, true);
  hit.scheduled.blocks_replaced = true;
  Submit({Start(2, {1, 2, 4, 3, 5})}, {hit});
  EXPECT_EQ(check(), kReads);
}

TEST_F(SimExecutorTest, NamesAPrefixOfAStepThatIsNotBack) {
  Submit({Start(1, {1, 2, 3, 4, 5})}, {Row(1, 0, 5, {0, 1}, true)});
  RowOfStep hit = Row(2, 4, 5, {0, 2}, true);
  hit.scheduled.blocks_replaced = true;
  Submit({Start(2, {1, 2, 3, 4, 5})}, {hit});
  EXPECT_EQ(check(), kReads);
}

TEST_F(SimExecutorTest, AFailedStepLeavesNothingToRead) {
  fault_.step = Internal("no");
  Submit({Start(1, {1, 2, 3, 4, 5})}, {Row(1, 0, 5, {0, 1}, true)});
  const StepResult failed = Finish();
  EXPECT_FALSE(failed.status.ok());
  EXPECT_TRUE(failed.sequences.empty());
  EXPECT_TRUE(executor_.has_failed(RequestId{1}));
  EXPECT_FALSE(executor_.has_failed(RequestId{2}));
  RowOfStep hit = Row(2, 4, 5, {0, 2}, true);
  hit.scheduled.blocks_replaced = true;
  Submit({Start(2, {1, 2, 3, 4, 5})}, {hit});
  EXPECT_EQ(check(), kReads);
}

TEST_F(SimExecutorTest, ALostResultIsGivenUp) {
  fault_.lost = true;
  Submit({Start(1, {1})}, {Row(1, 0, 1, {0}, true)});
  EXPECT_EQ(executor_.next_result_ns(), 5000);
  EXPECT_EQ(Finish().status.code(), StatusCode::kUnavailable);
}

TEST_F(SimExecutorTest, AFailedRowLeavesTheOthers) {
  fault_.rows_failing = {0};
  Submit({Start(1, {1}), Start(2, {2})}, {Row(1, 0, 1, {0}, true), Row(2, 0, 1, {1}, true)});
  const StepResult result = Finish();
  EXPECT_FALSE(result.sequences.at(0).status.ok());
  EXPECT_TRUE(result.sequences.at(1).status.ok());
  EXPECT_EQ(result.sequences.at(1).token, DrawToken(2, 0, 1, kVocab));
  EXPECT_EQ(check(), "");
}

}  // namespace
}  // namespace polysil

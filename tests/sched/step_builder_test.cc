#include "sched/step_builder.h"

#include <gtest/gtest.h>

#include <memory>

namespace polysil {
namespace {

class Sequences {
 public:
  Sequence& Add(int32_t rows) {
    auto request = std::make_shared<const Request>(
        Request{.prompt = std::vector<TokenId>(static_cast<size_t>(rows), 1)});
    all_.push_back(std::make_unique<Sequence>(SequenceId{all_.size()}, 0, request, rows + 10));
    return *all_.back();
  }

 private:
  std::vector<std::unique_ptr<Sequence>> all_;
};

std::vector<int32_t> Rows(const StepBuilder& builder) {
  std::vector<int32_t> rows;
  for (const StepBuilder::Part& part : builder.parts()) rows.push_back(part.rows);
  return rows;
}

TEST(StepBuilder, StopsAtEachLimit) {
  Sequences sequences;
  StepBuilder builder({.tokens_max = 10, .sequences_max = 3, .prefill_sequences_max = 1});
  builder.Start(StepKind::kMixed);
  EXPECT_EQ(builder.RowsFitting(50), 10);
  builder.Add(sequences.Add(1), 1);
  EXPECT_EQ(builder.RowsFitting(50), 9);
  builder.Add(sequences.Add(6), 6);
  EXPECT_EQ(builder.RowsFitting(2), 0) << "one prefill is the most";
  EXPECT_EQ(builder.RowsFitting(1), 1);
  builder.Add(sequences.Add(1), 1);
  EXPECT_EQ(builder.RowsFitting(1), 0) << "three sequences are the most";
  EXPECT_EQ(builder.tokens_total(), 8);
  builder.Start(StepKind::kMixed);
  EXPECT_EQ(builder.RowsFitting(50), 10);
}

TEST(StepBuilder, KeepsKindsApart) {
  Sequences sequences;
  StepBuilder builder({.tokens_max = 5, .mixes_prefill_and_decode = false});
  builder.Start(StepKind::kDecodeOnly);
  EXPECT_EQ(builder.RowsFitting(1), 1);
  EXPECT_EQ(builder.RowsFitting(2), 0);
  builder.Start(StepKind::kPrefillOnly);
  EXPECT_EQ(builder.RowsFitting(1), 0);
  EXPECT_EQ(builder.RowsFitting(9), 5);
  builder.Add(sequences.Add(4), 4);
  EXPECT_EQ(builder.RowsFitting(9), 0) << "the one row left would be a decode";
}

TEST(StepBuilder, BucketsBoundAStep) {
  const StepBuilder builder({.tokens_max = 100,
                             .sequences_max = 9,
                             .token_buckets = {8, 64},
                             .sequence_buckets = {1, 4}});
  EXPECT_EQ(builder.tokens_max(), 64);
  EXPECT_EQ(builder.sequences_max(), 4);
}

struct Trim {
  std::vector<int32_t> buckets;
  std::vector<int32_t> rows;
  std::vector<int32_t> after;
  StepKind kind = StepKind::kMixed;
};

TEST(StepBuilder, TrimsToTheBucketBelowWhereMostWouldBePadding) {
  const std::vector<Trim> cases = {
      {{4, 16, 128}, {20}, {16}},
      {{4, 16, 128}, {64}, {64}},
      {{4, 16, 128}, {63}, {16}},
      {{4, 16, 128}, {16}, {16}},
      {{4, 16, 128}, {3}, {3}},
      {{}, {20}, {20}},
      {{4, 16, 128}, {10, 10}, {10, 6}},
      {{4, 16, 128}, {15, 20}, {15, 1}},
      {{4, 16, 128}, {16, 20}, {16}},
      {{4, 16, 128}, {1, 1, 20}, {1, 1, 14}},
      {{2, 64}, {1, 1, 20}, {1, 1, 20}},  // prefill would stop
      {{3, 64}, {1, 1, 20}, {1, 1, 1}},
      {{2, 64}, {1, 1, 1}, {1, 1, 1}},  // decodes are not put off
      {{1, 64}, {20}, {20}, StepKind::kPrefillOnly},
      {{2, 64}, {20}, {2}, StepKind::kPrefillOnly},
      {{4, 64}, {3, 20}, {3}, StepKind::kPrefillOnly},  // one row alone would be a decode
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Sequences sequences;
    StepBuilder builder({.tokens_max = 128,
                         .mixes_prefill_and_decode = cases[i].kind == StepKind::kMixed,
                         .token_buckets = cases[i].buckets});
    builder.Start(cases[i].kind);
    for (const int32_t rows : cases[i].rows) builder.Add(sequences.Add(rows), rows);
    builder.TrimToBucket();
    EXPECT_EQ(Rows(builder), cases[i].after) << "case " << i;
    int32_t total = 0;
    for (const int32_t rows : cases[i].after) total += rows;
    EXPECT_EQ(builder.tokens_total(), total) << "case " << i;
  }
}

TEST(StepLimits, ImpossibleOnesAreRefused) {
  EXPECT_TRUE(Validate(StepLimits{}).ok());
  EXPECT_FALSE(Validate(StepLimits{.tokens_max = 0}).ok());
  EXPECT_FALSE(Validate(StepLimits{.sequences_max = 0}).ok());
  EXPECT_FALSE(Validate(StepLimits{.prefill_sequences_max = 0}).ok());
  EXPECT_FALSE(Validate(StepLimits{.steps_in_flight_max = 0}).ok());
  EXPECT_FALSE(Validate(StepLimits{.token_buckets = {0, 4}}).ok());
  EXPECT_FALSE(Validate(StepLimits{.token_buckets = {4, 4}}).ok());
  EXPECT_FALSE(Validate(StepLimits{.sequence_buckets = {4, 2}}).ok());
  EXPECT_FALSE(Validate(StepLimits{.tokens_max = 1, .mixes_prefill_and_decode = false}).ok());
  EXPECT_FALSE(Validate(StepLimits{.mixes_prefill_and_decode = false, .token_buckets = {1}}).ok());
}

}  // namespace
}  // namespace polysil

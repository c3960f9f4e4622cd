#include "core/sequence.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

std::shared_ptr<const Request> Prompt(int32_t tokens) {
  return std::make_shared<const Request>(
      Request{.prompt = std::vector<TokenId>(static_cast<size_t>(tokens), 7)});
}

TEST(SequenceState, LegalMovesAreThese) {
  using enum SequenceState;
  const std::vector<SequenceState> all = {kWaiting, kRunning, kTransferring, kPreempted, kFinished};
  const std::vector<std::pair<SequenceState, SequenceState>> legal = {
      {kWaiting, kRunning},      {kWaiting, kTransferring}, {kWaiting, kFinished},
      {kRunning, kTransferring}, {kRunning, kPreempted},    {kRunning, kFinished},
      {kTransferring, kWaiting}, {kTransferring, kRunning}, {kTransferring, kFinished},
      {kPreempted, kRunning},    {kPreempted, kFinished}};
  for (const SequenceState from : all) {
    for (const SequenceState to : all) {
      const bool expected = std::ranges::find(legal, std::pair{from, to}) != legal.end();
      EXPECT_EQ(IsLegalMove(from, to), expected) << Name(from) << " to " << Name(to);
    }
  }
}

TEST(SequenceDeathTest, IllegalMoveEndsTheProcess) {
  Sequence sequence(SequenceId{3}, 0, Prompt(4), 10);
  sequence.MoveTo(SequenceState::kFinished);
  EXPECT_DEATH(sequence.MoveTo(SequenceState::kRunning), "sequence 3: finished to running");
}

TEST(Sequence, CountsChunksThenDecodes) {
  Sequence sequence(SequenceId{1}, 0, Prompt(10), 12);
  sequence.StartAt(4);
  EXPECT_EQ(sequence.prompt_tokens_cached(), 4);
  EXPECT_EQ(sequence.rows_remaining(), 6);
  EXPECT_FALSE(sequence.SamplesAfter(5));
  sequence.OnScheduled(5, false);
  EXPECT_EQ(sequence.rows_remaining(), 1);
  EXPECT_TRUE(sequence.SamplesAfter(1));
  sequence.OnStepDone(false);
  sequence.OnComputed(5);
  EXPECT_EQ(sequence.tokens_computed(), 9);
  sequence.OnScheduled(1, true);
  // The token in flight is expected and can be scheduled before it is known.
  EXPECT_EQ(sequence.tokens_expected(), 11);
  EXPECT_EQ(sequence.rows_remaining(), 1);
  sequence.OnScheduled(1, true);
  // Position 11 holds the last token before the limit; it is never computed.
  EXPECT_EQ(sequence.rows_remaining(), 0);
  EXPECT_EQ(sequence.steps_in_flight(), 2);
  sequence.OnStepDone(true);
  sequence.OnComputed(1);
  sequence.Append(5);
  EXPECT_EQ(sequence.tokens_expected(), 12);
  EXPECT_EQ(sequence.output_tokens(), 1);
}

TEST(Sequence, OwesProgressFromPreemptionToTheNextToken) {
  Sequence sequence(SequenceId{1}, 0, Prompt(3), 10);
  sequence.MoveTo(SequenceState::kRunning);
  sequence.StartAt(0);
  EXPECT_FALSE(sequence.owes_progress());
  sequence.OnScheduled(3, true);
  sequence.OnStepDone(true);
  sequence.OnComputed(3);
  sequence.Append(5);
  sequence.Rewind();
  sequence.MoveTo(SequenceState::kPreempted);
  EXPECT_TRUE(sequence.owes_progress());
  EXPECT_EQ(sequence.tokens_total(), 4);
  EXPECT_EQ(sequence.rows_remaining(), 4);
  sequence.MoveTo(SequenceState::kRunning);
  sequence.StartAt(2);
  EXPECT_EQ(sequence.prompt_tokens_cached(), 0) << "counts the first run only";
  sequence.OnScheduled(2, true);
  sequence.OnStepDone(true);
  sequence.OnComputed(2);
  EXPECT_TRUE(sequence.owes_progress());
  sequence.Append(6);
  EXPECT_FALSE(sequence.owes_progress());
}

TEST(SequenceDeathTest, CannotBeRewoundUnderAStep) {
  Sequence sequence(SequenceId{1}, 0, Prompt(3), 10);
  sequence.StartAt(0);
  sequence.OnScheduled(3, true);
  EXPECT_DEATH(sequence.Rewind(), "step in flight");
}

}  // namespace
}  // namespace polysil

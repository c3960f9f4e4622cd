#include "engine/outbox.h"

#include <gtest/gtest.h>

#include "engine/progress_watch.h"
#include "engine/service_rate.h"

namespace polysil {
namespace {

class NullSink final : public OutputSink {
 public:
  void OnOutput(SequenceOutput) override {}
};

SequenceOutput Output(uint64_t request, int32_t index, std::vector<TokenId> tokens,
                      std::optional<FinishReason> finish = std::nullopt) {
  SequenceOutput output{.request = RequestId{request}, .sequence_index = index, .finish = finish};
  for (const TokenId id : tokens) output.tokens.push_back({.id = id});
  return output;
}

void Put(Outbox& outbox, std::vector<SequenceOutput> outputs) {
  outbox.Put(outputs);
}

std::vector<TokenId> Ids(const SequenceOutput& output) {
  std::vector<TokenId> ids;
  for (const OutputToken& token : output.tokens) ids.push_back(token.id);
  return ids;
}

TEST(Outbox, JoinsWhatWaitsForTheSameSequence) {
  Outbox outbox;
  outbox.Open(RequestId{1}, 2, std::make_shared<NullSink>());
  Put(outbox, {Output(1, 0, {5}), Output(1, 1, {6})});
  Put(outbox, {Output(1, 0, {7}), Output(1, 0, {}, FinishReason::kStop)});
  auto first = outbox.Take();
  EXPECT_EQ(Ids(first->output), (std::vector<TokenId>{5, 7}));
  EXPECT_EQ(first->output.finish, FinishReason::kStop);
  Put(outbox, {Output(1, 1, {8}, FinishReason::kLength)});
  auto second = outbox.Take();
  EXPECT_EQ(second->output.sequence_index, 1);
  EXPECT_EQ(Ids(second->output), (std::vector<TokenId>{6, 8}));
  outbox.Close();
  EXPECT_FALSE(outbox.Take().has_value());
}

TEST(Outbox, IsEmptyWhenEverySequenceHadItsEnd) {
  Outbox outbox;
  EXPECT_TRUE(outbox.WaitEmpty(0));
  outbox.Open(RequestId{1}, 2, std::make_shared<NullSink>());
  outbox.Finish(RequestId{1});
  EXPECT_FALSE(outbox.WaitEmpty(0));
  outbox.Finish(RequestId{1});
  EXPECT_TRUE(outbox.WaitEmpty(0));
  EXPECT_DEATH(outbox.Finish(RequestId{1}), "over already");
}

TEST(Outbox, MarksOnceAndOnlyWhatIsOpen) {
  Outbox outbox;
  EXPECT_FALSE(outbox.TryMarkCancelled(RequestId{1}));
  outbox.Open(RequestId{1}, 2, std::make_shared<NullSink>());
  EXPECT_TRUE(outbox.TryMarkCancelled(RequestId{1}));
  EXPECT_FALSE(outbox.TryMarkCancelled(RequestId{1}));
  EXPECT_TRUE(outbox.TryMarkStopped(RequestId{1}, 1));
  EXPECT_FALSE(outbox.TryMarkStopped(RequestId{1}, 1));
  EXPECT_FALSE(outbox.TryMarkStopped(RequestId{1}, 2));
  EXPECT_FALSE(outbox.TryMarkStopped(RequestId{1}, -1));
}

constexpr int64_t kSecond = 1'000'000'000;

TEST(ServiceRate, MeasuresTheLastSeconds) {
  ServiceRate rate(0);
  EXPECT_NEAR(rate.PerSecond(2 * kSecond), 0.5, 1e-9) << "none yet: as if one were about to finish";
  // Two a second for a minute, then one a second.
  uint64_t finished = 0;
  for (int64_t second = 1; second <= 60; ++second) rate.Observe(second * kSecond, finished += 2);
  EXPECT_NEAR(rate.PerSecond(60 * kSecond), 2.0, 0.3);
  for (int64_t second = 61; second <= 100; ++second) rate.Observe(second * kSecond, finished += 1);
  EXPECT_NEAR(rate.PerSecond(100 * kSecond), 1.0, 0.2);
  // An hour of nothing is forgotten as soon as work comes again.
  const int64_t later = 3700;
  for (int64_t second = 0; second <= 5; ++second) {
    rate.Observe((later + second) * kSecond, finished += 10);
  }
  EXPECT_GT(rate.PerSecond((later + 5) * kSecond), 2.0);
}

TEST(ProgressWatch, NamesWhatIsStuck) {
  ProgressWatch watch(2 * kSecond);
  EXPECT_EQ(watch.Stall(100 * kSecond), "");
  watch.step().Begin(10 * kSecond);
  EXPECT_EQ(watch.Stall(12 * kSecond), "");
  EXPECT_NE(watch.Stall(12 * kSecond + 1).find("no progress with a step"), std::string::npos);
  watch.step().End();
  watch.inbox().BeginIfIdle(20 * kSecond);
  watch.inbox().BeginIfIdle(22 * kSecond);
  EXPECT_NE(watch.Stall(23 * kSecond).find("engine thread has been stuck"), std::string::npos);
  watch.inbox().End();
  watch.delivery().Begin(0);
  EXPECT_NE(watch.Stall(3 * kSecond).find("sink has blocked"), std::string::npos);
}

}  // namespace
}  // namespace polysil

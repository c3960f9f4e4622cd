// The host tier, the events and the waiting for prefixes, at KvManager's own seam.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "kv/kv_manager.h"

namespace polysil {
namespace {

std::vector<TokenId> Prompt(int32_t count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class KvTiersTest : public testing::Test {
 protected:
  // A sequence's whole life: admitted, its copies carried by a step, published, closed.
  int32_t Live(const std::vector<TokenId>& tokens, bool step_succeeds = true) {
    const BlockTableId table = kv_.Open({});
    const std::optional<int32_t> cached = kv_.TryAdmit(table, tokens, 0);
    EXPECT_TRUE(cached.has_value());
    copies_.clear();
    kv_.TakeEvictions(++steps_, copies_);
    kv_.TakeArrivals(table, copies_);
    kv_.FinishCopies(steps_, step_succeeds);
    if (step_succeeds) kv_.Publish(table, tokens, static_cast<int32_t>(tokens.size()));
    kv_.Close(table);
    return cached.value_or(-1);
  }
  // Prompt(13, 1) lived and is displaced; a step that is in flight copies it to the host.
  void EvictInStep() {
    Live(Prompt(13, 1));
    const BlockTableId table = kv_.Open({});
    kv_.TryAdmit(table, Prompt(13, 100), 0);
    kv_.TakeEvictions(++steps_, copies_);
    kv_.Close(table);
  }
  void TearDown() override {
    const Status status = kv_.CheckIntegrity();
    EXPECT_TRUE(status.ok()) << Message(status);
  }

  KvManager kv_{{.blocks = 4, .tokens_per_block = 4, .host_blocks = 4}};
  std::vector<KvCopy> copies_;
  int64_t steps_ = 0;
};

TEST_F(KvTiersTest, CopiesOutBeforeInAndTailFirst) {
  Live(Prompt(13, 1));
  EXPECT_TRUE(copies_.empty());
  Live(Prompt(13, 100));
  // Blocks 0, 1, 2 of the first chain, from its tail; the fourth block was free.
  ASSERT_EQ(copies_.size(), 3U);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(copies_[static_cast<size_t>(i)].from, OnDevice({2 - i}));
    EXPECT_EQ(copies_[static_cast<size_t>(i)].to, OnHost({i}));
  }
  EXPECT_EQ(Live(Prompt(13, 1)), 12);
  // Three of four blocks are wanted back; what they displace goes out first, where there is room.
  ASSERT_EQ(copies_.size(), 4U);
  EXPECT_EQ(copies_[0].to, OnHost({3}));
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(copies_[i].to.tier, KvTier::kDevice) << i;
  EXPECT_EQ(copies_[1].from, OnHost({2})) << "the head of the chain";
}

TEST_F(KvTiersTest, WhatIsWantedBackIsNotDisplaced) {
  Live(Prompt(13, 1));
  Live(Prompt(13, 100));
  // Admitted, and not yet in a step, while others come and go.
  const BlockTableId waiting = kv_.Open({});
  EXPECT_EQ(kv_.TryAdmit(waiting, Prompt(6, 1), 0), 4);
  for (TokenId first = 200; first < 1000; first += 100) Live(Prompt(6, first));
  std::vector<KvCopy> copies;
  kv_.TakeArrivals(waiting, copies);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].from, OnHost({2}));
  EXPECT_EQ(copies[0].to, OnDevice(kv_.blocks(waiting)[0]));
  kv_.Close(waiting);
}

TEST_F(KvTiersTest, NothingIsFoundBeforeItsStepSucceeded) {
  EvictInStep();
  const BlockTableId c = kv_.Open({});
  EXPECT_EQ(kv_.TryAdmit(c, Prompt(13, 1), 0), 0) << "the copies are on their way";
  kv_.Close(c);
  kv_.FinishCopies(steps_, false);
  EXPECT_EQ(kv_.stats().host_blocks_used, 0);
  EXPECT_EQ(Live(Prompt(13, 1)), 0);
}

TEST_F(KvTiersTest, ComputedMeanwhileNeedsNoPlaceOnTheHost) {
  EvictInStep();
  const BlockTableId c = kv_.Open({});
  kv_.TryAdmit(c, Prompt(13, 1), 0);
  kv_.Publish(c, Prompt(13, 1), 13);
  kv_.Close(c);
  kv_.FinishCopies(steps_, true);
  EXPECT_EQ(kv_.stats().host_blocks_used, 0);
  EXPECT_EQ(Live(Prompt(13, 1)), 12);
}

TEST_F(KvTiersTest, EventsAddUpToWhatIsFindable) {
  std::set<std::pair<KvTier, KvBlockName>> known;
  size_t stored = 0;
  const auto follow = [&] {
    size_t tokens = 0;
    for (const KvEvent& event : kv_.events().events) {
      const std::pair<KvTier, KvBlockName> key{event.tier, event.hash};
      switch (event.kind) {
        case KvEventKind::kCleared:
          known.clear();
          break;
        case KvEventKind::kStored:
          EXPECT_TRUE(known.insert(key).second) << "stored twice";
          tokens += 4;
          ++stored;
          break;
        case KvEventKind::kRemoved:
          EXPECT_EQ(known.erase(key), 1U) << "removed what was not there";
          break;
      }
    }
    EXPECT_EQ(kv_.events().tokens.size(), tokens);
    kv_.ClearEvents();
  };
  ASSERT_EQ(kv_.events().events.size(), 1U);
  EXPECT_EQ(kv_.events().events[0].kind, KvEventKind::kCleared);
  follow();
  for (int32_t i = 0; i < 40; ++i) {
    Live(Prompt(5 + i % 9, 100 * (i * i % 4)), i % 7 != 3);
    follow();
    size_t on_host = 0;
    for (const auto& [tier, hash] : known) on_host += tier == KvTier::kHost ? 1 : 0;
    EXPECT_EQ(on_host, static_cast<size_t>(kv_.stats().host_blocks_used));
    EXPECT_EQ(known.size() - on_host, static_cast<size_t>(kv_.stats().blocks_cached));
  }
  EXPECT_GT(stored, 40U);
}

TEST_F(KvTiersTest, AStoredBlockNamesItsParentAndTokens) {
  kv_.ClearEvents();
  Live(Prompt(9, 1));
  const KvEvents& events = kv_.events();
  ASSERT_EQ(events.events.size(), 2U);
  EXPECT_EQ(events.events[0].parent, RootHash("", &Sha256).bytes);
  EXPECT_EQ(events.events[1].parent, events.events[0].hash);
  EXPECT_EQ(events.events[0].hash, NextHash(RootHash("", &Sha256), Prompt(4, 1), &Sha256).bytes);
  EXPECT_EQ(events.tokens, Prompt(8, 1));
}

TEST(KvWaiting, EndsWhenTheOtherHasComputedOrGivesUp) {
  KvManager kv({.blocks = 32, .tokens_per_block = 4});
  const std::vector<TokenId> tokens = Prompt(20, 1);
  for (const bool gives_up : {false, true}) {
    const BlockTableId a = kv.Open({.salt = gives_up ? "x" : "y"});
    ASSERT_EQ(kv.TryAdmit(a, tokens, 0), 0);
    const BlockTableId b = kv.Open({.salt = gives_up ? "x" : "y"});
    // They share two blocks and a half.
    std::vector<TokenId> other = tokens;
    other[10] = 77;
    EXPECT_FALSE(kv.WaitsForPrefix(b));
    EXPECT_EQ(kv.TryAdmit(b, other, 0), std::nullopt);
    EXPECT_TRUE(kv.WaitsForPrefix(b));
    kv.Publish(a, tokens, 7);
    EXPECT_TRUE(kv.WaitsForPrefix(b)) << "one of two";
    gives_up ? kv.Empty(a) : kv.Publish(a, tokens, 8);
    EXPECT_FALSE(kv.WaitsForPrefix(b));
    EXPECT_EQ(kv.TryAdmit(b, other, 0), gives_up ? 4 : 8);
    kv.Close(a);
    kv.Close(b);
    EXPECT_TRUE(kv.CheckIntegrity().ok());
  }
}

TEST(KvWaiting, NotWithoutSomethingToShare) {
  KvManager kv({.blocks = 32, .tokens_per_block = 4});
  const std::vector<TokenId> tokens = Prompt(20, 1);
  const BlockTableId a = kv.Open({});
  kv.TryAdmit(a, tokens, 0);
  std::vector<TokenId> other = tokens;
  other[3] = 77;
  EXPECT_EQ(kv.TryAdmit(kv.Open({}), other, 0), 0) << "another first block";
  EXPECT_EQ(kv.TryAdmit(kv.Open({.salt = "s"}), tokens, 0), 0) << "another salt";
  EXPECT_EQ(kv.TryAdmit(kv.Open({.reads_cache = false}), tokens, 0), 0) << "does not read";
  EXPECT_EQ(kv.TryAdmit(kv.Open({.priority = 1}), tokens, 0), 0) << "is more urgent";
  EXPECT_EQ(kv.TryAdmit(kv.Open({}), Prompt(4, 1), 0), 0) << "its only block has its last token";
}

}  // namespace
}  // namespace polysil

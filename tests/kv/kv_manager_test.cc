#include "kv/kv_manager.h"

#include <gtest/gtest.h>

#include <numeric>

namespace polysil {
namespace {

std::vector<TokenId> Tokens(int32_t count, TokenId first = 1) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<int32_t> Blocks(const KvManager& kv, BlockTableId table) {
  std::vector<int32_t> blocks;
  for (const BlockId block : kv.blocks(table)) blocks.push_back(block.value);
  return blocks;
}

class KvManagerTest : public testing::Test {
 protected:
  // A sequence from its first to its last block, published as far as computed.
  BlockTableId Compute(const std::vector<TokenId>& tokens, const std::string& salt = "") {
    const BlockTableId table = kv_.Open({salt, true});
    EXPECT_TRUE(kv_.TryAdmit(table, tokens, 0).has_value());
    kv_.Publish(table, tokens, static_cast<int32_t>(tokens.size()));
    return table;
  }
  int32_t Hit(const std::vector<TokenId>& tokens, const std::string& salt = "") {
    const BlockTableId table = kv_.Open({salt, true});
    const std::optional<int32_t> cached = kv_.TryAdmit(table, tokens, 0);
    kv_.Close(table);
    return cached.value_or(-1);
  }
  void TearDown() override {
    const Status status = kv_.CheckIntegrity();
    EXPECT_TRUE(status.ok()) << Message(status);
  }

  KvManager kv_{{.blocks = 8, .tokens_per_block = 4}};
};

TEST_F(KvManagerTest, AdmitsAllOrNothing) {
  const BlockTableId a = kv_.Open({"", true});
  EXPECT_EQ(kv_.TryAdmit(a, Tokens(21), 0), 0);
  EXPECT_EQ(Blocks(kv_, a), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  const BlockTableId b = kv_.Open({"", true});
  EXPECT_EQ(kv_.TryAdmit(b, Tokens(9, 100), 0), std::nullopt) << "needs 3, 2 are left";
  EXPECT_TRUE(kv_.blocks(b).empty());
  EXPECT_EQ(kv_.TryAdmit(b, Tokens(8, 100), 1), std::nullopt) << "one must be spared";
  EXPECT_EQ(kv_.TryAdmit(b, Tokens(8, 100), 0), 0);
  EXPECT_EQ(kv_.blocks_available(), 0);
}

TEST_F(KvManagerTest, ExtendsBlockByBlock) {
  const BlockTableId a = kv_.Open({"", true});
  kv_.TryAdmit(a, Tokens(4), 0);
  EXPECT_TRUE(kv_.TryExtend(a, 4));
  EXPECT_EQ(kv_.blocks(a).size(), 1U);
  EXPECT_TRUE(kv_.TryExtend(a, 5));
  EXPECT_EQ(kv_.blocks(a).size(), 2U);
  EXPECT_TRUE(kv_.TryExtend(a, 32));
  EXPECT_FALSE(kv_.TryExtend(a, 33));
  EXPECT_EQ(kv_.blocks(a).size(), 8U);
}

TEST_F(KvManagerTest, PublishesFullBlocksOnly) {
  const std::vector<TokenId> tokens = Tokens(11);
  const BlockTableId a = kv_.Open({"", true});
  kv_.TryAdmit(a, tokens, 0);
  kv_.Publish(a, tokens, 7);
  EXPECT_EQ(Hit(Tokens(8)), 4);
  EXPECT_EQ(Hit(tokens), -1) << "waits for the second block";
  kv_.Publish(a, tokens, 8);
  EXPECT_EQ(Hit(tokens), 8);
  kv_.Publish(a, tokens, 11);
  EXPECT_EQ(Hit(tokens), 8);
}

// PFX-01, PFX-02.
TEST_F(KvManagerTest, LeavesTheLastTokenToBeComputed) {
  kv_.Close(Compute(Tokens(20)));
  for (int32_t length = 1; length <= 20; ++length) {
    EXPECT_EQ(Hit(Tokens(length)), (length - 1) / 4 * 4) << length;
  }
}

TEST_F(KvManagerTest, SharesBlocksAndFreesThemWithTheLastHolder) {
  const std::vector<TokenId> tokens = Tokens(9);
  const BlockTableId a = Compute(tokens);
  const BlockTableId b = kv_.Open({"", true});
  EXPECT_EQ(kv_.TryAdmit(b, tokens, 0), 8);
  EXPECT_EQ(Blocks(kv_, b), (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(kv_.stats().blocks_used, 4);
  kv_.Close(a);
  EXPECT_EQ(kv_.stats().blocks_used, 3);
  EXPECT_EQ(kv_.stats().blocks_cached, 0);
  kv_.Close(b);
  EXPECT_EQ(kv_.stats().blocks_used, 0);
  EXPECT_EQ(kv_.stats().blocks_cached, 2);
}

TEST_F(KvManagerTest, BlocksOutliveTheSequenceWhileAStepHoldsThem) {
  const BlockTableId a = kv_.Open({"", true});
  kv_.TryAdmit(a, Tokens(8), 0);
  kv_.HoldForStep(a);
  kv_.HoldForStep(a);
  kv_.Close(a);
  EXPECT_EQ(kv_.stats().blocks_used, 2);
  kv_.ReleaseFromStep(a);
  EXPECT_EQ(kv_.stats().blocks_used, 2);
  // Its number is not given away either.
  EXPECT_NE(kv_.Open({"", true}), a);
  kv_.ReleaseFromStep(a);
  EXPECT_EQ(kv_.stats().blocks_used, 0);
  EXPECT_EQ(kv_.Open({"", true}), a);
}

// PFX-05.
TEST_F(KvManagerTest, EvictsFromTheTailOfTheOldestChain) {
  kv_.Close(Compute(Tokens(13)));       // 3 full blocks
  kv_.Close(Compute(Tokens(13, 100)));  // 3 full blocks
  EXPECT_EQ(kv_.stats().blocks_cached, 6);
  const BlockTableId a = kv_.Open({"", true});
  EXPECT_EQ(kv_.TryAdmit(a, Tokens(16, 200), 0), 0);  // takes 2 free ones, evicts 2
  kv_.Close(a);
  EXPECT_EQ(Hit(Tokens(13)), 4) << "the head of the older chain is left";
  EXPECT_EQ(Hit(Tokens(13, 100)), 12);
}

TEST_F(KvManagerTest, HitsAreHeldBeforeAnythingIsEvicted) {
  kv_.Close(Compute(Tokens(17)));
  EXPECT_EQ(kv_.stats().blocks_cached, 4);
  // 4 found, 4 free: all eight blocks, none evicted.
  const BlockTableId a = kv_.Open({"", true});
  std::vector<TokenId> tokens = Tokens(32);
  EXPECT_EQ(kv_.TryAdmit(a, tokens, 0), 16);
  EXPECT_EQ(kv_.blocks_available(), 0);
  kv_.Empty(a);
  // One more would need to evict what it found.
  tokens.push_back(7);
  EXPECT_EQ(kv_.TryAdmit(a, tokens, 0), std::nullopt);
  EXPECT_EQ(kv_.stats().blocks_cached, 4);
}

TEST_F(KvManagerTest, PreemptedTableFindsItsOwnBlocksAgain) {
  const std::vector<TokenId> tokens = Tokens(10);
  const BlockTableId a = Compute(tokens);
  kv_.Empty(a);
  EXPECT_EQ(kv_.stats().blocks_used, 0);
  EXPECT_EQ(kv_.TryAdmit(a, tokens, 0), 8);
  EXPECT_EQ(kv_.stats().query_tokens, 10U) << "a resumption is no new query";
  EXPECT_EQ(kv_.stats().hit_tokens, 0U);
}

TEST_F(KvManagerTest, ComputingAgainKeepsTheChainWhole) {
  // The last block of a prompt known as a whole is computed again, and what follows hangs on it.
  kv_.Close(Compute(Tokens(8)));
  const BlockTableId b = kv_.Open({"", true});
  EXPECT_EQ(kv_.TryAdmit(b, Tokens(8), 0), 4);
  kv_.TryExtend(b, 12);
  kv_.Publish(b, Tokens(12), 12);
  kv_.Close(b);
  EXPECT_EQ(kv_.stats().blocks_cached, 3) << "the first copy is free";
  EXPECT_EQ(Hit(Tokens(13)), 12);
}

TEST_F(KvManagerTest, HoleInAChainIsNeverJumped) {
  // Two compute the same; one's blocks are known, the other's second block hangs on them.
  const std::vector<TokenId> tokens = Tokens(12);
  const BlockTableId a = kv_.Open({"", true});
  const BlockTableId b = kv_.Open({.reads_cache = false});  // so that it does not wait
  kv_.TryAdmit(a, Tokens(4), 0);
  kv_.TryAdmit(b, tokens, 0);
  kv_.Publish(a, Tokens(4), 4);
  kv_.Publish(b, tokens, 8);
  kv_.Close(a);
  // Evict the first block while b still runs.
  const BlockTableId c = kv_.Open({"", true});
  EXPECT_EQ(kv_.TryAdmit(c, Tokens(20, 500), 0), 0);
  kv_.Close(c);
  EXPECT_EQ(Hit(tokens), 0);
  // The chain can be built anew over the remains.
  kv_.Close(b);
  kv_.Close(Compute(tokens));
  EXPECT_EQ(Hit(Tokens(13)), 12);
}

TEST(KvManager, WithoutCacheNothingIsKept) {
  KvManager kv({.blocks = 4, .tokens_per_block = 4, .prefix_cache = false});
  const std::vector<TokenId> tokens = Tokens(9);
  const BlockTableId a = kv.Open({"", true});
  kv.TryAdmit(a, tokens, 0);
  kv.Publish(a, tokens, 9);
  kv.Close(a);
  EXPECT_EQ(kv.stats().blocks_cached, 0);
  const BlockTableId b = kv.Open({"", true});
  EXPECT_EQ(kv.TryAdmit(b, tokens, 0), 0);
  EXPECT_EQ(kv.stats().query_tokens, 0U);
  EXPECT_TRUE(kv.CheckIntegrity().ok());
}

TEST(KvManagerDeathTest, MisuseEndsTheProcess) {
  KvManager kv({.blocks = 4, .tokens_per_block = 4});
  const BlockTableId a = kv.Open({"", true});
  kv.TryAdmit(a, Tokens(4), 0);
  kv.HoldForStep(a);
  EXPECT_DEATH(kv.Empty(a), "1 steps in flight");
  EXPECT_DEATH(kv.TryAdmit(a, Tokens(4), 0), "has blocks");
  EXPECT_DEATH(kv.Publish(a, Tokens(4), 5), "5 of 4");
  kv.Close(a);
  EXPECT_DEATH(kv.Close(a), "closed already");
  EXPECT_DEATH(kv.TryExtend(a, 5), "is closed");
  EXPECT_DEATH(kv.blocks(BlockTableId{7}), "table 7 of 1");
}

}  // namespace
}  // namespace polysil

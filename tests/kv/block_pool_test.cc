#include "kv/block_pool.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

TEST(BlockPool, GivesTheBlockThatWasFreeLongest) {
  BlockPool pool(3);
  EXPECT_EQ(pool.TryAllocate(), BlockId{0});
  EXPECT_EQ(pool.TryAllocate(), BlockId{1});
  EXPECT_EQ(pool.Release(BlockId{1}), 0);
  EXPECT_EQ(pool.Release(BlockId{0}), 0);
  EXPECT_EQ(pool.TryAllocate(), BlockId{2});
  EXPECT_EQ(pool.TryAllocate(), BlockId{1});
  EXPECT_EQ(pool.TryAllocate(), BlockId{0});
  EXPECT_EQ(pool.TryAllocate(), std::nullopt);
  EXPECT_EQ(pool.blocks_free(), 0);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPool, IsFreeWhenTheLastHolderIsGone) {
  BlockPool pool(1);
  const BlockId block = *pool.TryAllocate();
  pool.AddReference(block);
  pool.AddReference(block);
  EXPECT_EQ(pool.Release(block), 2);
  EXPECT_EQ(pool.Release(block), 1);
  EXPECT_EQ(pool.blocks_free(), 0);
  EXPECT_EQ(pool.TryAllocate(), std::nullopt);
  EXPECT_EQ(pool.Release(block), 0);
  EXPECT_EQ(pool.blocks_free(), 1);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolDeathTest, MisuseEndsTheProcess) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.Release(BlockId{0}), "free already");
  EXPECT_DEATH(pool.AddReference(BlockId{1}), "is free");
  EXPECT_DEATH(pool.Release(BlockId{2}), "block 2 of 2");
  EXPECT_DEATH(pool.Release(BlockId{-1}), "block -1 of 2");
}

}  // namespace
}  // namespace polysil

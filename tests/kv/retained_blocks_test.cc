#include "kv/retained_blocks.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

TEST(RetainedBlocks, OneTenantHasAQuarterAndAllHaveHalf) {
  RetainedBlocks retained(16);
  int32_t block = 0;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(retained.TryRetain(block++, {10, 0, "a"}));
  EXPECT_FALSE(retained.TryRetain(block, {10, 0, "a"}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(retained.TryRetain(block++, {10, 0, ""}));
  EXPECT_TRUE(retained.TryRetain(block++, {10, 0, "b"}));
  EXPECT_EQ(retained.blocks_held(), 8);
  EXPECT_FALSE(retained.TryRetain(block, {10, 0, "c"})) << "half of the pool is kept";
  // A second wish for the same block takes no more of the share.
  EXPECT_TRUE(retained.TryRetain(0, {20, 0, "a"}));
  retained.Forget(0);
  EXPECT_TRUE(retained.TryRetain(block, {10, 0, "a"}));
}

TEST(RetainedBlocks, TimeRunsFromTheMomentThatABlockIsIdle) {
  RetainedBlocks retained(16);
  retained.TryRetain(3, {100, 0, ""});
  EXPECT_EQ(retained.TakeExpired(1000), std::nullopt) << "it is in use";
  retained.MarkIdle(3, 1000);
  EXPECT_EQ(retained.TakeExpired(1099), std::nullopt);
  retained.MarkBusy(3);
  retained.MarkIdle(3, 1050);
  EXPECT_EQ(retained.TakeExpired(1149), std::nullopt);
  EXPECT_EQ(retained.TakeExpired(1150), 3);
  EXPECT_FALSE(retained.Holds(3));
  EXPECT_EQ(retained.blocks_held(), 0);
}

TEST(RetainedBlocks, TheLongerTimeAndTheHigherPriorityCount) {
  RetainedBlocks retained(16);
  retained.TryRetain(1, {100, 5, ""});
  retained.TryRetain(1, {50, 7, ""});
  retained.TryRetain(2, {100, 6, ""});
  retained.MarkIdle(1, 0);
  retained.MarkIdle(2, 0);
  EXPECT_EQ(retained.First(), 2);
  EXPECT_EQ(retained.TakeExpired(99), std::nullopt);
  EXPECT_EQ(retained.TakeExpired(100), 1) << "it became idle first";
  EXPECT_EQ(retained.TakeExpired(100), 2);
  EXPECT_EQ(retained.First(), std::nullopt);
}

}  // namespace
}  // namespace polysil

#include "daemon/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config.h"

namespace polysil {
namespace {

using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;
// SmolLM2-135M: 360 KiB for a block of 16 tokens.
constexpr KvLayout kLayout = {.layers = 30, .kv_heads = 3, .head_size = 64};

v1::Config With(std::initializer_list<std::string_view> settings) {
  v1::Config config;
  for (std::string_view setting : settings) EXPECT_TRUE(MergeSetting(setting, config).ok());
  return *Complete(config);
}

TEST(Sizing, TakesAQuarterOfMemoryUpToTwoGiB) {
  EXPECT_EQ(SizeKv(With({}), 8192, kLayout, 4 * kGiB)->blocks, kGiB / kLayout.block_bytes());
  EXPECT_EQ(SizeKv(With({}), 8192, kLayout, 400 * kGiB)->blocks, 2 * kGiB / kLayout.block_bytes());
}

TEST(Sizing, EightBitKvTakesLittleMoreThanHalf) {
  KvLayout layout = kLayout;
  layout.dtype = DType::kI8;
  EXPECT_EQ(layout.block_bytes(), 30 * 2 * 3 * 16 * (64 + 4));
  EXPECT_EQ(SizeKv(With({}), 8192, layout, 4 * kGiB)->blocks, kGiB / layout.block_bytes());
}

TEST(Sizing, HoldsAtLeastOneContext) {
  const KvSizing sizing = *SizeKv(With({}), 131072, kLayout, 10 * kGiB);
  EXPECT_EQ(sizing.blocks, 131072 / 16);
  EXPECT_EQ(sizing.context_tokens, 131072);
}

TEST(Sizing, TheDefaultContextShrinksToMemory) {
  const KvSizing sizing = *SizeKv(With({}), 131072, kLayout, kGiB);
  EXPECT_EQ(sizing.blocks, kGiB / 2 / kLayout.block_bytes());
  EXPECT_EQ(sizing.context_tokens, sizing.blocks * 16);
}

TEST(Sizing, GivenBlocksBoundTheContext) {
  const KvSizing sizing = *SizeKv(With({"kv.blocks=10"}), 8192, kLayout, 8 * kGiB);
  EXPECT_EQ(sizing.blocks, 10);
  EXPECT_EQ(sizing.context_tokens, 160);
}

TEST(Sizing, ContradictionsAreSentences) {
  const auto message = [](std::initializer_list<std::string_view> settings, int64_t memory) {
    const Status status = SizeKv(With(settings), 8192, kLayout, memory).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(message({"model.context_tokens=9000"}, 8 * kGiB), HasSubstr("trained for 8192"));
  EXPECT_THAT(message({"model.context_tokens=161", "kv.blocks=10"}, 8 * kGiB),
              HasSubstr("give at least 11 blocks"));
  EXPECT_THAT(message({"kv.blocks=1000000"}, 8 * kGiB), HasSubstr("MiB of memory are free"));
}

}  // namespace
}  // namespace polysil

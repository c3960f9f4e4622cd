#include "kv/prefix_cache.h"

#include <gtest/gtest.h>

#include "kv/block_hash.h"

namespace polysil {
namespace {

// A name that says nothing: any two contents collide.
constexpr BlockHash kSameName{};

struct Content {
  std::vector<TokenId> tokens;
  PrefixLink parent = kRootLink;
  std::string salt;
  BlockHash hash = kSameName;

  PrefixBlock block() const { return {hash, parent, salt, tokens}; }
};

BlockHash Named(uint8_t name) {
  BlockHash hash;
  hash.bytes[0] = name;
  return hash;
}

// What goes next, gone.
std::optional<BlockId> Evict(PrefixCache& cache) {
  const std::optional<BlockId> block = cache.NextToGo(KvTier::kDevice);
  if (block) cache.Forget(OnDevice(*block));
  return block;
}

TEST(PrefixCache, FindsWhatWasPublished) {
  PrefixCache cache(4, 0, 2);
  const Content first{{1, 2}, kRootLink, "", Named(1)};
  const auto published = cache.Publish(BlockId{3}, first.block());
  EXPECT_TRUE(published.added);
  EXPECT_EQ(published.dropped, std::nullopt);
  const auto hit = cache.Find(first.block());
  ASSERT_TRUE(hit.has_value());
  EXPECT_EQ(hit->place.block, BlockId{3});
  EXPECT_EQ(hit->link, published.link);
  const Content second{{3, 4}, published.link, "", Named(2)};
  EXPECT_FALSE(cache.Find(second.block()).has_value());
  cache.Publish(BlockId{0}, second.block());
  EXPECT_EQ(cache.Find(second.block())->place.block, BlockId{0});
  EXPECT_EQ(cache.blocks_held(KvTier::kDevice), 2);
  EXPECT_TRUE(cache.CheckIntegrity().ok());
}

// PFX-06, PFX-09: equal names are not enough.
TEST(PrefixCache, ComparesTokensParentAndSalt) {
  PrefixCache cache(4, 0, 2);
  const Content known{{1, 2}, kRootLink, "tenant"};
  const PrefixLink link = cache.Publish(BlockId{0}, known.block()).link;
  EXPECT_TRUE(cache.Find(known.block()).has_value());
  EXPECT_FALSE(cache.Find(Content{{2, 1}, kRootLink, "tenant"}.block()).has_value());
  EXPECT_FALSE(cache.Find(Content{{1, 2}, kRootLink, ""}.block()).has_value());
  EXPECT_FALSE(cache.Find(Content{{1, 2}, kRootLink, "other"}.block()).has_value());
  EXPECT_FALSE(cache.Find(Content{{1, 2}, link, "tenant"}.block()).has_value());
}

TEST(PrefixCache, ForgottenBlocksKeepNoSalt) {
  PrefixCache cache(2, 0, 2);
  cache.Publish(BlockId{0}, Content{{1, 2}, kRootLink, "a", Named(1)}.block());
  cache.MarkIdle(OnDevice(BlockId{0}), 0);
  Evict(cache);
  const Content other{{1, 2}, kRootLink, "b", Named(2)};
  cache.Publish(BlockId{0}, other.block());
  EXPECT_TRUE(cache.Find(other.block()).has_value());
  cache.MarkIdle(OnDevice(BlockId{0}), 0);
  Evict(cache);
  const Content plain{{1, 2}, kRootLink, "", Named(3)};
  cache.Publish(BlockId{0}, plain.block());
  EXPECT_TRUE(cache.Find(plain.block()).has_value());
}

TEST(PrefixCache, NewContentReplacesOldUnderTheSameName) {
  PrefixCache cache(4, 0, 2);
  const Content old{{1, 2}};
  const Content young{{8, 9}};
  cache.Publish(BlockId{0}, old.block());
  const auto published = cache.Publish(BlockId{1}, young.block());
  EXPECT_TRUE(published.added);
  EXPECT_EQ(published.dropped, OnDevice(BlockId{0}));
  EXPECT_FALSE(cache.Find(old.block()).has_value());
  EXPECT_EQ(cache.Find(young.block())->place.block, BlockId{1});
  EXPECT_FALSE(cache.Holds(OnDevice(BlockId{0})));
  EXPECT_TRUE(cache.CheckIntegrity().ok());
}

TEST(PrefixCache, KnownContentStaysInTheBlockInUse) {
  PrefixCache cache(4, 0, 2);
  const Content content{{1, 2}};
  const PrefixLink link = cache.Publish(BlockId{0}, content.block()).link;
  const auto again = cache.Publish(BlockId{1}, content.block());
  EXPECT_FALSE(again.added);
  EXPECT_EQ(again.link, link);
  EXPECT_EQ(cache.Find(content.block())->place.block, BlockId{0});
}

// So that a chain that goes on does not hang on a block that is next to be evicted.
TEST(PrefixCache, BlockInUseTakesTheIdleOnesPlace) {
  PrefixCache cache(4, 0, 2);
  const Content content{{1, 2}, kRootLink, "", Named(1)};
  const PrefixLink link = cache.Publish(BlockId{0}, content.block()).link;
  const Content child{{3, 4}, link, "", Named(2)};
  cache.Publish(BlockId{2}, child.block());
  cache.MarkIdle(OnDevice(BlockId{0}), 0);
  const auto again = cache.Publish(BlockId{1}, content.block());
  EXPECT_TRUE(again.added);
  EXPECT_EQ(again.dropped, OnDevice(BlockId{0}));
  EXPECT_EQ(again.link, link) << "what hangs on the content is still found";
  EXPECT_EQ(cache.Find(content.block())->place.block, BlockId{1});
  EXPECT_TRUE(cache.Find(child.block()).has_value());
  EXPECT_EQ(cache.blocks_idle(KvTier::kDevice), 0);
  EXPECT_TRUE(cache.CheckIntegrity().ok());
}

TEST(PrefixCache, EvictsWhatHasBeenIdleLongest) {
  PrefixCache cache(4, 0, 1);
  for (uint8_t i = 0; i < 4; ++i) {
    cache.Publish(BlockId{i}, Content{{i}, kRootLink, "s", Named(i)}.block());
  }
  EXPECT_EQ(Evict(cache), std::nullopt);
  for (const int32_t block : {2, 0, 3, 1}) cache.MarkIdle(OnDevice(BlockId{block}), 0);
  cache.MarkBusy(OnDevice(BlockId{0}));
  cache.MarkIdle(OnDevice(BlockId{0}), 0);
  cache.MarkBusy(OnDevice(BlockId{3}));
  EXPECT_EQ(cache.blocks_idle(KvTier::kDevice), 3);
  EXPECT_EQ(Evict(cache), BlockId{2});
  EXPECT_EQ(Evict(cache), BlockId{1});
  EXPECT_EQ(Evict(cache), BlockId{0});
  EXPECT_EQ(Evict(cache), std::nullopt);
  EXPECT_EQ(cache.blocks_held(KvTier::kDevice), 1);
  EXPECT_TRUE(cache.CheckIntegrity().ok());
}

TEST(BlockHash, IsFixedAndChained) {
  // The first half of SHA-256 of "polysil kv 1", by any other implementation.
  const BlockHash root = RootHash("", &Sha256);
  std::string hex;
  for (const uint8_t byte : root.bytes) hex += fmt::format("{:02x}", byte);
  EXPECT_EQ(hex, "a3ab49c534d1debc24df834ff755ea13");
  const std::vector<TokenId> tokens = {1, 2, 3, 70000};
  hex.clear();
  for (const uint8_t byte : NextHash(root, tokens, &Sha256).bytes) {
    hex += fmt::format("{:02x}", byte);
  }
  EXPECT_EQ(hex, "0676cb5e494a1f8a01e863599c0be21f");
  EXPECT_NE(RootHash("a", &Sha256), root);
  EXPECT_NE(NextHash(RootHash("a", &Sha256), tokens, &Sha256), NextHash(root, tokens, &Sha256));
}

}  // namespace
}  // namespace polysil

// What the bookkeeping of KV costs in memory, by counting what is allocated in this program.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <new>
#include <numeric>

#include "kv/kv_manager.h"

namespace {

int64_t bytes_live = 0;
int64_t allocations = 0;

}  // namespace

// Kept out of line: the compiler would see free() behind delete and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  ++allocations;
  bytes_live += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  bytes_live -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}

namespace polysil {
namespace {

constexpr int32_t kBlockTokens = 16;

std::vector<TokenId> Numbered(int32_t count, TokenId first) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// The token ids of the block, which are compared on every hit, are part of it.
TEST(KvMemory, OfAnIdleCachedBlock) {
  // Just above a step of the index's growth: the worst case.
  for (const int32_t blocks : {8192, 14337}) {
    const int64_t before = bytes_live;
    KvManager kv({.blocks = blocks, .tokens_per_block = kBlockTokens});
    for (int32_t i = 0; kv.stats().blocks_cached + 4 <= blocks; ++i) {
      const std::vector<TokenId> tokens = Numbered(4 * kBlockTokens, i * 100);
      const BlockTableId table = kv.Open({});
      ASSERT_EQ(kv.TryAdmit(table, tokens, 0), 0);
      kv.Publish(table, tokens, 4 * kBlockTokens);
      kv.Close(table);
      kv.ClearEvents();
    }
    ASSERT_GT(kv.stats().blocks_cached, blocks - 4);
    const double bytes = static_cast<double>(bytes_live - before) / blocks;
    RecordProperty("bytes_per_block_of_" + std::to_string(blocks), std::to_string(bytes));
    EXPECT_LE(bytes, 128.0) << blocks << " blocks";
  }
}

// Sequences that grow, fill blocks, evict others' and end: once all has its room, nothing more.
TEST(KvMemory, NoneIsTakenInTheLoopOfSteps) {
  KvManager kv({.blocks = 96, .tokens_per_block = kBlockTokens, .host_blocks = 16});
  std::vector<std::vector<TokenId>> all;
  for (TokenId i = 0; i < 8; ++i) all.push_back(Numbered(200, 1000 * i));
  std::vector<BlockTableId> tables(all.size());
  std::vector<KvCopy> copies;
  copies.reserve(1000);
  int64_t step = 0;
  const auto round = [&](TokenId salt) {
    for (size_t i = 0; i < all.size(); ++i) {
      all[i][0] = salt;
      tables[i] = kv.Open({});
      ASSERT_EQ(kv.TryAdmit(tables[i], std::span(all[i]).first(40), 0), 0);
    }
    for (int32_t length = 40; length < 160; ++length) {
      ++step;
      kv.ClearEvents();
      copies.clear();
      kv.TakeEvictions(step, copies);
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_TRUE(kv.TryExtend(tables[i], length + 1));
        kv.HoldForStep(tables[i]);
        kv.ReleaseFromStep(tables[i]);
        kv.Publish(tables[i], all[i], length);
      }
      kv.FinishCopies(step, true);
    }
    for (const BlockTableId table : tables) kv.Close(table);
  };
  for (TokenId salt = 1; salt < 20; ++salt) round(salt);
  ASSERT_GT(kv.stats().blocks_copied_out, 100U);
  const int64_t before = allocations;
  round(20);
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace polysil

// How an attention call is cut: every row gets each of its chunks once, in slots of its own, and
// only rows whose tables name the same blocks for a chunk share a task.
#include "device/cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "kernels/kernels.h"

namespace polysil {
namespace {

using kernels::kAttentionChunk;

// Sequences of one call over blocks of 16 tokens, with 3 query heads on each of 3 KV heads.
struct PlannedCall {
  // A sequence with `rows` rows that end at `length`, whose table is these blocks and then its own.
  void Add(int32_t length, int32_t rows, std::vector<BlockId> shared = {}) {
    std::vector<BlockId>& table = tables.emplace_back(std::move(shared));
    while (static_cast<int32_t>(table.size()) * 16 < length) table.push_back({block_next++});
    sequences.push_back({.row_begin = rows_total, .rows = rows, .position_begin = length - rows});
    rows_total += rows;
  }
  void Build(AttentionPlan& plan, int32_t threads = 2) {
    for (size_t i = 0; i < tables.size(); ++i) sequences[i].block_table = tables[i];
    plan.Build({.pool = &pool, .q_heads = 9, .sequences = sequences, .window = window}, threads);
  }
  std::vector<BlockId> Prefix(int32_t tokens) {
    std::vector<BlockId> blocks;
    for (int32_t t = 0; t < tokens; t += 16) blocks.push_back({block_next++});
    return blocks;
  }

  KvPool pool = {.layout = {.layers = 1, .kv_heads = 3, .head_size = 64}};
  int32_t window = 0;
  int32_t rows_total = 0;
  int32_t block_next = 0;
  std::vector<std::vector<BlockId>> tables;
  std::vector<AttentionSequence> sequences;
};

// Pairs of a task's chunk and KV head, by the number of rows that go through it together.
std::map<int32_t, int32_t> ChunksByRows(const AttentionPlan& plan) {
  std::map<int32_t, int32_t> chunks;
  for (const AttentionPlan::Task& task : plan.tasks()) {
    chunks[task.rows] += task.chunk_end - task.chunk_begin;
  }
  return chunks;
}

void ExpectEveryChunkOnce(const PlannedCall& call, const AttentionPlan& plan) {
  std::set<std::tuple<int32_t, int32_t, int32_t>> covered;  // row, KV head, chunk
  std::set<std::tuple<int32_t, int32_t>> slots;             // KV head, slot
  for (const AttentionPlan::Task& task : plan.tasks()) {
    ASSERT_LE(task.rows, plan.task_rows_max());
    const std::span<const int32_t> rows = plan.RowsOf(task);
    const AttentionPlan::Row& first = plan.row(rows.front());
    for (size_t i = 0; i < rows.size(); ++i) {
      const AttentionPlan::Row& row = plan.row(rows[i]);
      for (int32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
        const bool seen = row.chunk_begin <= chunk && chunk < row.chunk_end;
        if (task.slot == AttentionPlan::kNone && !seen) continue;
        ASSERT_TRUE(seen);
        ASSERT_TRUE(covered.emplace(rows[i], task.kv_head, chunk).second);
        for (int32_t p = chunk * kAttentionChunk;
             p < std::min((chunk + 1) * kAttentionChunk, row.position + 1); ++p) {
          const auto block = static_cast<size_t>(p / 16);
          ASSERT_EQ(call.tables[static_cast<size_t>(row.sequence)][block],
                    call.tables[static_cast<size_t>(first.sequence)][block]);
        }
      }
      if (task.slot == AttentionPlan::kNone) {
        ASSERT_EQ(row.pieces_begin, AttentionPlan::kNone);
        continue;
      }
      const int32_t slot = task.slot + static_cast<int32_t>(i);
      ASSERT_LT(slot, plan.slots());
      ASSERT_TRUE(slots.emplace(task.kv_head, slot).second);
      ASSERT_EQ(plan.SlotsOf(row)[static_cast<size_t>(task.chunk_begin - row.chunk_begin)], slot);
    }
  }
  size_t chunks = 0;
  for (int32_t r = 0; r < plan.rows(); ++r) {
    chunks += static_cast<size_t>(3 * (plan.row(r).chunk_end - plan.row(r).chunk_begin));
  }
  EXPECT_EQ(covered.size(), chunks);
}

TEST(AttentionPlan, ASharedPrefixIsReadByEightRowsTogether) {
  PlannedCall call;
  const std::vector<BlockId> prefix = call.Prefix(1248);
  for (int i = 0; i < 32; ++i) call.Add(1250, 1, prefix);
  AttentionPlan plan;
  call.Build(plan);
  ExpectEveryChunkOnce(call, plan);
  // Four whole chunks for four times eight rows, and the fifth for each row, of three heads.
  EXPECT_EQ(ChunksByRows(plan), (std::map<int32_t, int32_t>{{8, 3 * 4 * 4}, {1, 3 * 32}}));
}

TEST(AttentionPlan, BranchesOfATreeShareWhatTheyHaveInCommon) {
  PlannedCall call;
  const std::vector<BlockId> root = call.Prefix(256);
  std::vector<BlockId> branch = root;
  for (const BlockId block : call.Prefix(512)) branch.push_back(block);
  call.Add(900, 1, branch);
  call.Add(900, 1);
  call.Add(400, 1, root);
  call.Add(1200, 1, branch);
  AttentionPlan plan;
  call.Build(plan);
  ExpectEveryChunkOnce(call, plan);
  // Chunk 0 of three rows, chunks 1 and 2 of two, and 1 + 4 + 1 + 2 of one.
  EXPECT_EQ(ChunksByRows(plan), (std::map<int32_t, int32_t>{{3, 3}, {2, 6}, {1, 24}}));
}

TEST(AttentionPlan, RowsThatShareNothingAreWholeTasks) {
  PlannedCall call;
  for (int i = 0; i < 8; ++i) call.Add(600 + i, 1);
  AttentionPlan plan;
  call.Build(plan);
  EXPECT_EQ(plan.tasks().size(), 24U);
  EXPECT_EQ(plan.slots(), 0);
}

TEST(AttentionPlan, OneBlockThatDiffersEndsTheSharing) {
  PlannedCall call;
  const std::vector<BlockId> prefix = call.Prefix(512);
  std::vector<BlockId> other = prefix;
  other[15] = call.Prefix(16).front();  // the last of chunk 0; chunk 1 is the same
  call.Add(600, 1, prefix);
  call.Add(600, 1, other);
  AttentionPlan plan;
  call.Build(plan, 1);
  EXPECT_EQ(plan.slots(), 0);
}

TEST(AttentionPlan, AWindowSkipsWhatNobodySees) {
  PlannedCall call;
  call.window = 300;
  const std::vector<BlockId> prefix = call.Prefix(1024);
  for (const int32_t length : {1026, 1030, 1500}) call.Add(length, 1, prefix);
  AttentionPlan plan;
  call.Build(plan);
  ExpectEveryChunkOnce(call, plan);
  // Positions from 726 and 730 on; the third row sees none of the prefix, and two chunks.
  EXPECT_EQ(ChunksByRows(plan), (std::map<int32_t, int32_t>{{2, 6}, {1, 6 + 6}}));
}

TEST(AttentionPlan, RandomCallsCoverEveryChunkOnce) {
  std::mt19937 random(11);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % uint32_t(n)); };
  AttentionPlan plan;
  for (int round = 0; round < 200; ++round) {
    PlannedCall call;
    call.window = below(3) == 0 ? 1 + below(900) : 0;
    for (int32_t s = below(12); s >= 0; --s) {
      std::vector<BlockId> shared;
      if (!call.tables.empty() && below(3) > 0) {
        shared = call.tables[static_cast<size_t>(below(static_cast<int32_t>(call.tables.size())))];
        shared.resize(static_cast<size_t>(below(static_cast<int32_t>(shared.size()) + 1)));
      }
      const int32_t rows = below(4) == 0 ? 1 + below(40) : 1 + below(3);
      call.Add(rows + below(1500), rows, shared);
    }
    call.Build(plan, 1 + below(3));
    ExpectEveryChunkOnce(call, plan);
  }
}

}  // namespace
}  // namespace polysil

#include "device/cpu/attention_plan.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

using kernels::kAttentionChunk;

// Queries that go through keys and values together; their scores stay in the first-level cache.
constexpr int32_t kTileQueries = 24;

// Fewer tasks than this per thread are cut into chunks.
constexpr int32_t kTasksPerThread = 4;

// First position that the row at `position` sees.
int32_t FirstSeen(int32_t position, int32_t window) {
  return window > 0 ? std::max(0, position - window + 1) : 0;
}

// Room for `count` elements, and not a few more each time.
template <typename T>
void Reserve(std::vector<T>& elements, size_t count) {
  if (elements.capacity() < count) elements.reserve(2 * count);
}

}  // namespace

void AttentionPlan::Build(const AttentionArgs& args, int32_t threads) {
  kv_heads_ = args.pool->layout.kv_heads;
  tile_rows_ = std::max(1, kTileQueries / (args.q_heads / kv_heads_));
  slots_ = 0;
  tasks_.clear();
  task_rows_.clear();
  pieces_.clear();
  ListRows(args);
  ReserveForRows();
  ShareChunks(args);
  const bool apart = TooFewTiles(args, threads);
  for (size_t s = 0; s < sequences_.size(); ++s) AddTiles(args, static_cast<int32_t>(s), apart);
}

void AttentionPlan::ListRows(const AttentionArgs& args) {
  rows_.clear();
  sequences_.clear();
  for (const AttentionSequence& sequence : args.sequences) {
    const int32_t end = sequence.position_begin + sequence.rows;
    CHECK(static_cast<int64_t>(sequence.block_table.size()) * args.pool->layout.tokens_per_block >=
              end,
          "the block table of {} blocks does not cover {} positions", sequence.block_table.size(),
          end);
    const auto index = static_cast<int32_t>(sequences_.size());
    sequences_.push_back({rows(), 0});
    for (int32_t r = 0; r < sequence.rows; ++r) {
      const int32_t position = sequence.position_begin + r;
      const int32_t seen_begin = FirstSeen(position, args.window);
      rows_.push_back({sequence.row_begin + r, index, position, seen_begin,
                       seen_begin / kAttentionChunk, position / kAttentionChunk + 1, kNone});
    }
  }
}

// Whatever the cut: a step that is no larger than one before allocates nothing.
void AttentionPlan::ReserveForRows() {
  size_t chunks = 0;
  for (const Row& row : rows_) chunks += static_cast<size_t>(row.chunk_end - row.chunk_begin);
  Reserve(pieces_, chunks);
  Reserve(task_rows_, chunks);
  Reserve(tasks_, chunks * static_cast<size_t>(kv_heads_));
  Reserve(order_, sequences_.size());
  Reserve(ranges_, sequences_.size());
  Reserve(ranges_next_, sequences_.size());
}

// Sequences of few rows leave room in a tile for those of others. They are told apart chunk by
// chunk: who is still together has had the same blocks in all chunks before.
void AttentionPlan::ShareChunks(const AttentionArgs& args) {
  order_.clear();
  ranges_.clear();
  int32_t chunk = INT32_MAX;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const int32_t count = args.sequences[s].rows;
    if (count < 1 || count >= tile_rows_) continue;
    order_.push_back(static_cast<int32_t>(s));
    chunk = std::min(chunk, row(sequences_[s].rows_begin).chunk_begin);
  }
  if (order_.size() > 1) ranges_.push_back({0, static_cast<int32_t>(order_.size())});
  for (; !ranges_.empty(); ++chunk) {
    ranges_next_.clear();
    for (const Range& range : ranges_) SplitRange(args, range, chunk);
    std::swap(ranges_, ranges_next_);
  }
}

std::span<const BlockId> AttentionPlan::BlocksOf(const AttentionArgs& args, int32_t sequence,
                                                 int32_t chunk) const {
  const int32_t tokens = args.pool->layout.tokens_per_block;
  const auto begin = static_cast<size_t>(chunk * kAttentionChunk / tokens);
  const auto end = static_cast<size_t>(((chunk + 1) * kAttentionChunk + tokens - 1) / tokens);
  const std::span<const BlockId> table = args.sequences[static_cast<size_t>(sequence)].block_table;
  return end <= table.size() ? table.subspan(begin, end - begin) : std::span<const BlockId>();
}

// Finds those of the range that have the same blocks in this chunk.
void AttentionPlan::SplitRange(const AttentionArgs& args, Range range, int32_t chunk) {
  const auto sees = [&](int32_t s) {
    const AttentionSequence& sequence = args.sequences[static_cast<size_t>(s)];
    return chunk * kAttentionChunk < sequence.position_begin + sequence.rows &&
           !BlocksOf(args, s, chunk).empty();
  };
  const auto begin = order_.begin() + range.begin;
  const auto end = std::partition(begin, order_.begin() + range.end, sees);
  std::sort(begin, end, [&](int32_t a, int32_t b) {
    const BlockId first_a = BlocksOf(args, a, chunk).front();
    const BlockId first_b = BlocksOf(args, b, chunk).front();
    return first_a != first_b ? first_a < first_b : a < b;
  });
  for (auto same_begin = begin; same_begin != end;) {
    const std::span<const BlockId> blocks = BlocksOf(args, *same_begin, chunk);
    const auto like_first = std::find_if(same_begin, end, [&](int32_t s) {
      return BlocksOf(args, s, chunk).front() != blocks.front();
    });
    const auto same_end = std::partition(same_begin, like_first, [&](int32_t s) {
      return std::ranges::equal(BlocksOf(args, s, chunk), blocks);
    });
    if (same_end - same_begin > 1) {
      const Range members = {static_cast<int32_t>(same_begin - order_.begin()),
                             static_cast<int32_t>(same_end - order_.begin())};
      ShareChunk(args, members, chunk);
      ranges_next_.push_back(members);
    }
    same_begin = same_end;
  }
}

// One chunk for all rows of the members that see it.
void AttentionPlan::ShareChunk(const AttentionArgs& args, Range members, int32_t chunk) {
  const auto rows_begin = static_cast<int32_t>(task_rows_.size());
  for (int32_t m = members.begin; m < members.end; ++m) {
    const auto s = static_cast<size_t>(order_[static_cast<size_t>(m)]);
    sequences_[s].own_begin = chunk + 1;
    for (int32_t r = 0; r < args.sequences[s].rows; ++r) {
      const int32_t index = sequences_[s].rows_begin + r;
      if (row(index).chunk_begin <= chunk && chunk < row(index).chunk_end) {
        task_rows_.push_back(index);
      }
    }
  }
  AddTasks(rows_begin, chunk);
}

// Tasks of one chunk for the rows listed from `rows_begin` on.
void AttentionPlan::AddTasks(int32_t rows_begin, int32_t chunk) {
  const auto rows_end = static_cast<int32_t>(task_rows_.size());
  for (int32_t i = rows_begin; i < rows_end; ++i) {
    Row& row = rows_[static_cast<size_t>(task_rows_[static_cast<size_t>(i)])];
    if (row.pieces_begin == kNone) {
      row.pieces_begin = static_cast<int32_t>(pieces_.size());
      pieces_.resize(pieces_.size() + static_cast<size_t>(row.chunk_end - row.chunk_begin));
    }
    pieces_[static_cast<size_t>(row.pieces_begin + chunk - row.chunk_begin)] =
        slots_ + i - rows_begin;
  }
  for (int32_t head = 0; head < kv_heads_; ++head) {
    for (int32_t i = rows_begin; i < rows_end; i += tile_rows_) {
      tasks_.push_back(
          {i, std::min(tile_rows_, rows_end - i), head, chunk, chunk + 1, slots_ + i - rows_begin});
    }
  }
  slots_ += rows_end - rows_begin;
}

// Chunks that any of the rows sees; rows are of one sequence, in order.
AttentionPlan::Range AttentionPlan::ChunksOf(Range rows) const {
  return {row(rows.begin).chunk_begin, row(rows.end - 1).chunk_end};
}

// Whether whole tiles would be too few tasks, and chunks more.
bool AttentionPlan::TooFewTiles(const AttentionArgs& args, int32_t threads) const {
  if (threads == 1) return false;
  auto tiles = static_cast<int64_t>(tasks_.size());
  int64_t chunks = tiles;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const int32_t begin = sequences_[s].rows_begin;
    const int32_t end = begin + args.sequences[s].rows;
    for (int32_t r = begin; r < end; r += tile_rows_) {
      const Range seen = ChunksOf({r, std::min(end, r + tile_rows_)});
      const int32_t own = seen.end - std::max(seen.begin, sequences_[s].own_begin);
      tiles += kv_heads_;
      chunks += int64_t{kv_heads_} * std::max(own, 0);
    }
  }
  return tiles < int64_t{kTasksPerThread} * threads && chunks > tiles;
}

// The rows of a sequence against the chunks that are its own.
void AttentionPlan::AddTiles(const AttentionArgs& args, int32_t sequence, bool apart) {
  const SequenceRows& rows = sequences_[static_cast<size_t>(sequence)];
  const int32_t rows_end = rows.rows_begin + args.sequences[static_cast<size_t>(sequence)].rows;
  for (int32_t begin = rows.rows_begin; begin < rows_end; begin += tile_rows_) {
    const int32_t end = std::min(rows_end, begin + tile_rows_);
    const Range chunks = ChunksOf({begin, end});
    const int32_t own_begin = std::max(chunks.begin, rows.own_begin);
    if (apart || own_begin > chunks.begin) {
      for (int32_t chunk = own_begin; chunk < chunks.end; ++chunk) {
        const auto listed = static_cast<int32_t>(task_rows_.size());
        for (int32_t r = begin; r < end; ++r) {
          if (row(r).chunk_begin <= chunk && chunk < row(r).chunk_end) task_rows_.push_back(r);
        }
        AddTasks(listed, chunk);
      }
      continue;
    }
    const auto listed = static_cast<int32_t>(task_rows_.size());
    for (int32_t r = begin; r < end; ++r) task_rows_.push_back(r);
    for (int32_t head = 0; head < kv_heads_; ++head) {
      tasks_.push_back({listed, end - begin, head, chunks.begin, chunks.end, kNone});
    }
  }
}

}  // namespace polysil

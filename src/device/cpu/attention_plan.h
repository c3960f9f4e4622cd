// AttentionPlan: how one attention call is cut into tasks. A task is a few rows of one KV head
// against chunks of positions. Rows of several sequences whose tables name the same blocks for a
// chunk go through it together; what a row sees beyond that is its own. The cut never changes a
// result: a row's chunks, and the order in which they are joined, depend on its position alone.
// Pure bookkeeping, kept between calls so that its memory is; owned and used by CpuAttention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "polysil/device/ops.h"

namespace polysil {

class AttentionPlan final {
 public:
  struct Row {
    int32_t row;       // in the batch
    int32_t sequence;  // in the call
    int32_t position;
    int32_t seen_begin;   // it sees positions [seen_begin, position]
    int32_t chunk_begin;  // chunks that it sees
    int32_t chunk_end;
    int32_t pieces_begin;  // where its chunks' slots are noted, or kNone: one task computes it all
  };
  struct Task {
    int32_t rows_begin;  // in RowsOf
    int32_t rows;
    int32_t kv_head;
    int32_t chunk_begin;  // one chunk when it writes to a slot
    int32_t chunk_end;
    int32_t slot;  // of its first row, or kNone: it writes the output
  };
  static constexpr int32_t kNone = -1;

  // Chunks are cut off from each other where there would be too few tasks for the threads.
  void Build(const AttentionArgs& args, int32_t threads);

  std::span<const Task> tasks() const { return tasks_; }
  // Most rows of a task.
  int32_t task_rows_max() const { return tile_rows_; }
  // Rows of all chunks computed apart, of one KV head: each has a slot for its partial result.
  int32_t slots() const { return slots_; }
  int32_t rows() const { return static_cast<int32_t>(rows_.size()); }
  const Row& row(int32_t index) const { return rows_[static_cast<size_t>(index)]; }
  // Indices of a task's rows.
  std::span<const int32_t> RowsOf(const Task& task) const {
    return std::span(task_rows_)
        .subspan(static_cast<size_t>(task.rows_begin), static_cast<size_t>(task.rows));
  }
  // Slots of a row's chunks, in order; of a row that is not computed by one task.
  std::span<const int32_t> SlotsOf(const Row& row) const {
    return std::span(pieces_).subspan(static_cast<size_t>(row.pieces_begin),
                                      static_cast<size_t>(row.chunk_end - row.chunk_begin));
  }

 private:
  struct Range {
    int32_t begin;
    int32_t end;
  };
  struct SequenceRows {
    int32_t rows_begin;  // in rows_
    int32_t own_begin;   // chunks from here on are nobody else's
  };

  void ListRows(const AttentionArgs& args);
  void ReserveForRows();
  void ShareChunks(const AttentionArgs& args);
  void SplitRange(const AttentionArgs& args, Range range, int32_t chunk);
  void ShareChunk(const AttentionArgs& args, Range members, int32_t chunk);
  std::span<const BlockId> BlocksOf(const AttentionArgs& args, int32_t sequence,
                                    int32_t chunk) const;
  bool TooFewTiles(const AttentionArgs& args, int32_t threads) const;
  void AddTiles(const AttentionArgs& args, int32_t sequence, bool apart);
  void AddTasks(int32_t rows_begin, int32_t chunk);
  Range ChunksOf(Range rows) const;

  int32_t kv_heads_ = 0;
  int32_t tile_rows_ = 0;
  int32_t slots_ = 0;
  std::vector<Row> rows_;                // of all sequences, in order
  std::vector<SequenceRows> sequences_;  // as in the call
  std::vector<Task> tasks_;
  std::vector<int32_t> task_rows_;
  std::vector<int32_t> pieces_;
  // Sequences by the blocks that they have in common so far, and where those that do lie.
  std::vector<int32_t> order_;
  std::vector<Range> ranges_;
  std::vector<Range> ranges_next_;
};

}  // namespace polysil

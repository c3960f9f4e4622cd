// CpuAttention: paged attention of the CPU device. Work is cut into tiles of rows of one KV head,
// and, when there are too few of them for the threads, further into chunks of positions whose
// partial results are joined in order; both ways do the same operations in the same order. Called
// by the worker thread.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/device/ops.h"

namespace polysil {

class CpuAttention final {
 public:
  CpuAttention(const kernels::CpuKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool), scratch_(static_cast<size_t>(pool.threads())) {}

  void Store(const StoreKvArgs& args);
  void Attend(const AttentionArgs& args);

 private:
  // Rows of one sequence for one KV head: rows * group queries.
  struct Tile {
    const AttentionSequence* sequence;
    int32_t row_begin;  // in the sequence
    int32_t rows;
    int32_t kv_head;
    int32_t chunk_begin;  // chunks that its rows see
    int32_t chunk_end;
    int32_t partials_begin;  // its first slot when chunks are computed apart
  };
  struct ChunkTask {
    int32_t tile;
    int32_t chunk;
  };
  struct Span {
    int32_t begin;
    int32_t end;
  };
  // One thread's working memory, as pointers into its block.
  struct Scratch;

  template <typename Element>
  void StoreRow(const StoreKvArgs& args, const AttentionSequence& sequence, int32_t row,
                int32_t rank);
  float* RowOf(int32_t rank, int32_t head_size);
  void PlanTiles(const AttentionArgs& args);
  Scratch ScratchOf(int32_t rank, const AttentionArgs& args);
  kernels::AttentionPartials PartialsAt(float* memory) const;
  void ComputeChunk(const AttentionArgs& args, const Tile& tile, int32_t chunk,
                    const Scratch& scratch, const kernels::AttentionPartials& partials) const;
  static void FillGroups(const AttentionArgs& args, const Tile& tile, int32_t origin, Span seen,
                         const Scratch& scratch);
  void LoadQueries(const AttentionArgs& args, const Tile& tile, float* q) const;
  void WriteOutput(const AttentionArgs& args, const Tile& tile,
                   const kernels::AttentionPartials& all) const;
  void AttendTile(const AttentionArgs& args, const Tile& tile, int32_t rank);
  void AttendByChunks(const AttentionArgs& args);

  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  std::vector<AlignedMemory> scratch_;  // by rank
  std::vector<Tile> tiles_;
  std::vector<ChunkTask> chunk_tasks_;
  AlignedMemory partials_;
  int32_t tile_queries_ = 0;  // most queries of a tile
};

}  // namespace polysil

// CpuAttention: paged attention of the CPU device. The plan cuts a call into tasks; a task either
// computes its rows to the end or leaves the partial result of one chunk, and whoever computes the
// last chunk of a row joins them in order. Both ways do the same operations in the same order.
// Called by the worker thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/attention_plan.h"
#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/device/ops.h"

namespace polysil {

class CpuAttention final {
 public:
  CpuAttention(const kernels::CpuKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool), scratch_(static_cast<size_t>(pool.threads())) {}

  void Attend(const AttentionArgs& args);

 private:
  // Facts of the call in hand.
  struct Call {
    const AttentionArgs& args;
    int32_t group;    // query heads of one KV head
    int32_t padded;   // floats of a query
    int32_t queries;  // most of a task
    float* slots = nullptr;
    int64_t slot_queries = 0;  // of all slots
  };
  struct Span {
    int32_t begin;
    int32_t end;
  };
  // One thread's working memory, as pointers into its block.
  struct Scratch;

  Scratch ScratchOf(int32_t rank, const Call& call);
  void PrepareSlots(Call& call);
  kernels::AttentionPartials SlotAt(const Call& call, int32_t kv_head, int32_t slot) const;
  void RunTask(const Call& call, const AttentionPlan::Task& task, int32_t rank);
  void ComputeChunk(const Call& call, const AttentionPlan::Task& task, int32_t chunk,
                    const Scratch& scratch, const kernels::AttentionPartials& partials) const;
  int32_t FillGroups(const Call& call, const AttentionPlan::Task& task, int32_t origin, Span seen,
                     const Scratch& scratch) const;
  int32_t FillNext(const Call& call, const AttentionPlan::Task& task, int32_t chunk,
                   const std::byte** reads) const;
  void LoadQueries(const Call& call, const AttentionPlan::Task& task, float* q) const;
  void JoinChunks(const Call& call, const AttentionPlan::Row& row, int32_t kv_head,
                  const kernels::AttentionPartials& all) const;
  void WriteRow(const Call& call, const AttentionPlan::Row& row, int32_t kv_head,
                const kernels::AttentionPartials& all) const;

  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  AttentionPlan plan_;
  std::vector<AlignedMemory> scratch_;   // by rank
  AlignedMemory slots_;                  // partial results of chunks computed apart
  std::vector<int32_t> chunks_missing_;  // of each row and KV head; threads count them down
};

}  // namespace polysil

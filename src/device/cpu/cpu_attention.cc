#include "device/cpu/cpu_attention.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/cpu/kv_planes.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

using kernels::AttentionPartials;
using kernels::kAttentionChunk;
using kernels::kKeyGroup;
using kernels::PaddedHeadSize;

static_assert(kKeyGroup == KvLayout::kKeyGroup);

// Groups of the next chunk that are asked for while one is computed.
constexpr int32_t kGroupsAhead = 8;

// Partials of queries [first, ...) of those given.
AttentionPartials From(const AttentionPartials& all, int64_t first, int32_t padded) {
  return {all.largest + first, all.totals + first, all.sums + first * padded};
}

// Partials of queries [first, ...) of `queries` in one piece of memory. The sums come first, so
// that they are aligned as it is.
AttentionPartials PartialsAt(float* memory, int64_t queries, int32_t padded, int64_t first) {
  float* largest = memory + queries * padded;
  return From({largest, largest + queries, memory}, first, padded);
}

// Where the keys of a position's group lie; its values are a plane further.
const std::byte* KeysAt(const AttentionArgs& args, int32_t sequence, int32_t kv_head,
                        int32_t position) {
  const KvLayout& layout = args.pool->layout;
  const std::span<const BlockId> table = args.sequences[static_cast<size_t>(sequence)].block_table;
  const BlockId block = table[static_cast<size_t>(position / layout.tokens_per_block)];
  return KvPlane(*args.pool, block, args.layer, false) + kv_head * layout.head_bytes() +
         position % layout.tokens_per_block * layout.token_bytes();
}

}  // namespace

struct CpuAttention::Scratch {
  float* q;
  AttentionPartials next;
  AttentionPartials all;
  float* kernel;
  int32_t* begins;
  int32_t* ends;
  const std::byte** keys;
  const std::byte** values;
  const std::byte** reads;
};

void CpuAttention::Attend(const AttentionArgs& args) {
  const KvLayout& layout = args.pool->layout;
  CHECK(layout.kv_heads > 0 && args.q_heads % layout.kv_heads == 0,
        "{} query heads do not divide by {} key heads", args.q_heads, layout.kv_heads);
  CHECK(layout.tokens_per_block % kKeyGroup == 0, "blocks of {} tokens", layout.tokens_per_block);
  plan_.Build(args, pool_.threads());
  const int32_t group = args.q_heads / layout.kv_heads;
  Call call = {args, group, PaddedHeadSize(layout.head_size), plan_.task_rows_max() * group};
  for (int32_t rank = 0; rank < pool_.threads(); ++rank) ScratchOf(rank, call);
  chunks_missing_.reserve(static_cast<size_t>(plan_.rows()) * static_cast<size_t>(layout.kv_heads));
  if (plan_.slots() > 0) PrepareSlots(call);
  const std::span<const AttentionPlan::Task> tasks = plan_.tasks();
  pool_.Run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int32_t rank) {
    RunTask(call, tasks[static_cast<size_t>(index)], rank);
  });
}

void CpuAttention::PrepareSlots(Call& call) {
  const int32_t kv_heads = call.args.pool->layout.kv_heads;
  call.slot_queries = int64_t{kv_heads} * plan_.slots() * call.group;
  call.slots = slots_.Grow<float>(call.slot_queries * (2 + call.padded));
  chunks_missing_.clear();
  for (int32_t r = 0; r < plan_.rows(); ++r) {
    const AttentionPlan::Row& row = plan_.row(r);
    chunks_missing_.insert(chunks_missing_.end(), static_cast<size_t>(kv_heads),
                           row.chunk_end - row.chunk_begin);
  }
}

AttentionPartials CpuAttention::SlotAt(const Call& call, int32_t kv_head, int32_t slot) const {
  return PartialsAt(call.slots, call.slot_queries, call.padded,
                    (int64_t{kv_head} * plan_.slots() + slot) * call.group);
}

CpuAttention::Scratch CpuAttention::ScratchOf(int32_t rank, const Call& call) {
  const KvLayout& layout = call.args.pool->layout;
  const int64_t queries = call.queries;
  const int64_t q_floats = queries * call.padded;
  const int64_t partials_floats = (queries * (2 + call.padded) + 15) / 16 * 16;
  const int64_t kernel_floats = kernels::AttentionScratchFloats(call.queries, layout.head_size);
  constexpr int64_t kGroups = kAttentionChunk / kKeyGroup;
  constexpr int64_t kPointers = 2 * kGroups + (2 * kGroups + kGroupsAhead);
  constexpr int64_t kPointerFloats = kPointers * sizeof(std::byte*) / sizeof(float);
  const int64_t bounds_floats = (2 * queries + 15) / 16 * 16;
  auto* at = scratch_[static_cast<size_t>(rank)].Grow<float>(
      kPointerFloats + bounds_floats + q_floats + 2 * partials_floats + kernel_floats);
  Scratch scratch;
  scratch.keys = reinterpret_cast<const std::byte**>(at);
  scratch.values = scratch.keys + kGroups;
  scratch.reads = scratch.values + kGroups;
  at += kPointerFloats;
  scratch.begins = reinterpret_cast<int32_t*>(at);
  scratch.ends = scratch.begins + queries;
  at += bounds_floats;
  scratch.q = at;
  at += q_floats;
  scratch.next = PartialsAt(at, queries, call.padded, 0);
  at += partials_floats;
  scratch.all = PartialsAt(at, queries, call.padded, 0);
  scratch.kernel = at + partials_floats;
  return scratch;
}

void CpuAttention::RunTask(const Call& call, const AttentionPlan::Task& task, int32_t rank) {
  const Scratch scratch = ScratchOf(rank, call);
  const std::span<const int32_t> rows = plan_.RowsOf(task);
  LoadQueries(call, task, scratch.q);
  if (task.slot != AttentionPlan::kNone) {
    ComputeChunk(call, task, task.chunk_begin, scratch, SlotAt(call, task.kv_head, task.slot));
    for (const int32_t r : rows) {
      const int64_t index = int64_t{r} * call.args.pool->layout.kv_heads + task.kv_head;
      // Whoever comes last has seen what all others have written.
      std::atomic_ref<int32_t> missing(chunks_missing_[static_cast<size_t>(index)]);
      if (missing.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
      JoinChunks(call, plan_.row(r), task.kv_head, scratch.all);
    }
    return;
  }
  const int32_t queries = task.rows * call.group;
  std::fill_n(scratch.all.totals, queries, 0.0F);
  for (int32_t chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    ComputeChunk(call, task, chunk, scratch, scratch.next);
    kernels_.merge_partials(queries, call.args.pool->layout.head_size, scratch.next, scratch.all);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * call.group;
    WriteRow(call, plan_.row(rows[i]), task.kv_head, From(scratch.all, first, call.padded));
  }
}

// Joins the partials of a row's chunks, in order.
void CpuAttention::JoinChunks(const Call& call, const AttentionPlan::Row& row, int32_t kv_head,
                              const AttentionPartials& all) const {
  std::fill_n(all.totals, call.group, 0.0F);
  for (const int32_t slot : plan_.SlotsOf(row)) {
    kernels_.merge_partials(call.group, call.args.pool->layout.head_size,
                            SlotAt(call, kv_head, slot), all);
  }
  WriteRow(call, row, kv_head, all);
}

void CpuAttention::WriteRow(const Call& call, const AttentionPlan::Row& row, int32_t kv_head,
                            const AttentionPartials& all) const {
  const int32_t head_size = call.args.pool->layout.head_size;
  const int64_t head = int64_t{row.row} * call.args.q_heads + kv_head * call.group;
  for (int32_t i = 0; i < call.group; ++i) {
    float* out = call.args.out + (head + i) * head_size;
    std::memcpy(out, all.sums + i * call.padded, static_cast<size_t>(head_size) * sizeof(float));
    kernels_.scale(out, 1.0F / all.totals[i], head_size);
  }
}

void CpuAttention::LoadQueries(const Call& call, const AttentionPlan::Task& task, float* q) const {
  const int32_t head_size = call.args.pool->layout.head_size;
  for (const int32_t r : plan_.RowsOf(task)) {
    const int64_t head = int64_t{plan_.row(r).row} * call.args.q_heads + task.kv_head * call.group;
    for (int32_t i = 0; i < call.group; ++i, q += call.padded) {
      std::memcpy(q, call.args.q + (head + i) * head_size,
                  static_cast<size_t>(head_size) * sizeof(float));
      std::fill(q + head_size, q + call.padded, 0.0F);
    }
  }
}

// Where the keys and values of positions origin + [seen.begin, seen.end) lie, from the first of
// their sixteen on. Returns how many groups there are to read.
int32_t CpuAttention::FillGroups(const Call& call, const AttentionPlan::Task& task, int32_t origin,
                                 Span seen, const Scratch& scratch) const {
  const AttentionPlan::Row& row = plan_.row(plan_.RowsOf(task).front());
  const int32_t first = seen.begin / 16 * 16 / kKeyGroup;
  const int32_t last = (seen.end + kKeyGroup - 1) / kKeyGroup;
  const int64_t plane_bytes = call.args.pool->layout.plane_bytes();
  for (int32_t group = first; group < last; ++group) {
    const std::byte* keys =
        KeysAt(call.args, row.sequence, task.kv_head, origin + group * kKeyGroup);
    scratch.keys[group] = keys;
    scratch.values[group] = keys + plane_bytes;
    scratch.reads[group - first] = keys;
    scratch.reads[last - first + group - first] = keys + plane_bytes;
  }
  return std::max(0, 2 * (last - first));
}

// The first groups of what follows: the task's next chunk, or the next task, which this thread most
// likely takes. Returns how many there are.
int32_t CpuAttention::FillNext(const Call& call, const AttentionPlan::Task& task, int32_t chunk,
                               const std::byte** reads) const {
  const std::span<const AttentionPlan::Task> tasks = plan_.tasks();
  const AttentionPlan::Task* next = &task;
  int32_t next_chunk = chunk + 1;
  if (next_chunk == task.chunk_end) {
    if (++next == tasks.data() + tasks.size()) return 0;
    next_chunk = next->chunk_begin;
  }
  const AttentionPlan::Row& row = plan_.row(plan_.RowsOf(*next).front());
  const int32_t begin = std::max(row.seen_begin, next_chunk * kAttentionChunk) / 16 * 16;
  const int32_t end = std::min(row.position + 1, begin + kGroupsAhead * kKeyGroup);
  int32_t count = 0;
  for (int32_t p = begin; p < end; p += kKeyGroup) {
    reads[count++] = KeysAt(call.args, row.sequence, next->kv_head, p);
  }
  return count;
}

// A task's queries against one chunk. Its rows have the same blocks there.
void CpuAttention::ComputeChunk(const Call& call, const AttentionPlan::Task& task, int32_t chunk,
                                const Scratch& scratch, const AttentionPartials& partials) const {
  const KvLayout& layout = call.args.pool->layout;
  const int32_t origin = chunk * kAttentionChunk;
  const std::span<const int32_t> rows = plan_.RowsOf(task);
  Span seen = {kAttentionChunk, 0};
  int32_t query = 0;
  for (const int32_t r : rows) {
    const AttentionPlan::Row& row = plan_.row(r);
    const Span own = {std::clamp(row.seen_begin - origin, 0, kAttentionChunk),
                      std::clamp(row.position + 1 - origin, 0, kAttentionChunk)};
    std::fill_n(scratch.begins + query, call.group, own.begin);
    std::fill_n(scratch.ends + query, call.group, own.end);
    query += call.group;
    if (own.begin >= own.end) continue;
    seen = {std::min(seen.begin, own.begin), std::max(seen.end, own.end)};
  }
  const int32_t reads = FillGroups(call, task, origin, seen, scratch);
  const int32_t reads_next = FillNext(call, task, chunk, scratch.reads + reads);
  const kernels::AttentionChunk work = {
      .queries = query,
      .head_size = layout.head_size,
      .type = KvTypeOf(layout.dtype),
      .scale = call.args.scale,
      .softcap = call.args.softcap,
      .q = scratch.q,
      .begins = scratch.begins,
      .ends = scratch.ends,
      .keys = scratch.keys,
      .values = scratch.values,
      .reads = scratch.reads,
      .reads_count = reads + reads_next,
  };
  kernels_.attend_chunk(work, scratch.kernel, partials);
}

}  // namespace polysil

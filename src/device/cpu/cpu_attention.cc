#include "device/cpu/cpu_attention.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "polysil/base/check.h"

namespace polysil {
namespace {

using kernels::AttentionPartials;
using kernels::kAttentionChunk;
using kernels::kKeyGroup;
using kernels::PaddedHeadSize;

static_assert(kKeyGroup == KvLayout::kKeyGroup);

// Queries that go through keys and values together; their scores stay in the first-level cache.
constexpr int32_t kTileQueries = 24;

// Fewer tiles than this per thread are cut into chunks.
constexpr int32_t kTilesPerThread = 4;

constexpr int32_t kStoreRowsPerTask = 16;

// K or V of one layer of one block.
std::byte* Plane(const KvPool& pool, BlockId block, int32_t layer, bool value) {
  return pool.base + block.value * pool.layout.block_bytes() +
         (int64_t{layer} * 2 + (value ? 1 : 0)) * pool.layout.plane_bytes();
}

// First position that the row at `position` sees.
int32_t FirstSeen(int32_t position, int32_t window) {
  return window > 0 ? std::max(0, position - window + 1) : 0;
}

}  // namespace

struct CpuAttention::Scratch {
  float* q;
  float* partials;
  float* totals;
  float* kernel;
  int32_t* begins;
  int32_t* ends;
  const std::byte** keys;
  const std::byte** values;
};

void CpuAttention::Store(const StoreKvArgs& args) {
  const bool halves = args.pool->layout.dtype == DType::kF16;
  for (int32_t rank = 0; rank < pool_.threads(); ++rank) RowOf(rank, args.pool->layout.head_size);
  for (const AttentionSequence& sequence : args.sequences) {
    const int32_t tasks = (sequence.rows + kStoreRowsPerTask - 1) / kStoreRowsPerTask;
    pool_.Run(tasks, [&](int64_t task, int32_t rank) {
      const auto begin = static_cast<int32_t>(task) * kStoreRowsPerTask;
      const int32_t end = std::min(sequence.rows, begin + kStoreRowsPerTask);
      for (int32_t row = begin; row < end; ++row) {
        halves ? StoreRow<uint16_t>(args, sequence, row, rank)
               : StoreRow<float>(args, sequence, row, rank);
      }
    });
  }
}

float* CpuAttention::RowOf(int32_t rank, int32_t head_size) {
  return scratch_[static_cast<size_t>(rank)].Grow<float>(head_size);
}

template <typename Element>
void CpuAttention::StoreRow(const StoreKvArgs& args, const AttentionSequence& sequence, int32_t row,
                            int32_t rank) {
  const KvLayout& layout = args.pool->layout;
  const int32_t position = sequence.position_begin + row;
  const BlockId block =
      sequence.block_table[static_cast<size_t>(position / layout.tokens_per_block)];
  const int64_t token = position % layout.tokens_per_block;
  const auto narrow = [&](const float* from, Element* to) {
    if constexpr (std::is_same_v<Element, float>) {
      std::memcpy(to, from, static_cast<size_t>(layout.head_size) * sizeof(float));
    } else {
      kernels_.floats_to_halves(from, layout.head_size, to);
    }
  };
  auto* key = reinterpret_cast<Element*>(RowOf(rank, layout.head_size));
  for (int32_t h = 0; h < layout.kv_heads; ++h) {
    const int64_t from =
        (int64_t{sequence.row_begin + row} * layout.kv_heads + h) * layout.head_size;
    const int64_t head = h * layout.head_bytes();
    auto* keys = reinterpret_cast<Element*>(Plane(*args.pool, block, args.layer, false) + head) +
                 token / kKeyGroup * kKeyGroup * layout.head_size + token % kKeyGroup;
    narrow(args.k + from, key);
    for (int32_t d = 0; d < layout.head_size; ++d) keys[d * kKeyGroup] = key[d];
    auto* values = reinterpret_cast<Element*>(Plane(*args.pool, block, args.layer, true) + head);
    narrow(args.v + from, values + token * layout.head_size);
  }
}

void CpuAttention::Attend(const AttentionArgs& args) {
  const KvLayout& layout = args.pool->layout;
  CHECK(layout.kv_heads > 0 && args.q_heads % layout.kv_heads == 0,
        "{} query heads do not divide by {} key heads", args.q_heads, layout.kv_heads);
  CHECK(layout.tokens_per_block % kKeyGroup == 0, "blocks of {} tokens", layout.tokens_per_block);
  PlanTiles(args);
  const bool apart = pool_.threads() > 1 &&
                     static_cast<int32_t>(tiles_.size()) < kTilesPerThread * pool_.threads() &&
                     chunk_tasks_.size() > tiles_.size();
  if (apart) return AttendByChunks(args);
  for (int32_t rank = 0; rank < pool_.threads(); ++rank) ScratchOf(rank, args);
  pool_.Run(static_cast<int64_t>(tiles_.size()), [&](int64_t index, int32_t rank) {
    AttendTile(args, tiles_[static_cast<size_t>(index)], rank);
  });
}

void CpuAttention::PlanTiles(const AttentionArgs& args) {
  const int32_t kv_heads = args.pool->layout.kv_heads;
  const int32_t group = args.q_heads / kv_heads;
  const int32_t tile_rows = std::max(1, kTileQueries / group);
  tile_queries_ = tile_rows * group;
  tiles_.clear();
  chunk_tasks_.clear();
  for (const AttentionSequence& sequence : args.sequences) {
    const int32_t end_position = sequence.position_begin + sequence.rows;
    CHECK(static_cast<int64_t>(sequence.block_table.size()) * args.pool->layout.tokens_per_block >=
              end_position,
          "the block table of {} blocks does not cover {} positions", sequence.block_table.size(),
          end_position);
    for (int32_t row = 0; row < sequence.rows; row += tile_rows) {
      const int32_t rows = std::min(tile_rows, sequence.rows - row);
      const int32_t first = FirstSeen(sequence.position_begin + row, args.window);
      const int32_t last = sequence.position_begin + row + rows - 1;
      for (int32_t head = 0; head < kv_heads; ++head) {
        const Tile tile = {&sequence,
                           row,
                           rows,
                           head,
                           first / kAttentionChunk,
                           last / kAttentionChunk + 1,
                           static_cast<int32_t>(chunk_tasks_.size())};
        for (int32_t c = tile.chunk_begin; c < tile.chunk_end; ++c) {
          chunk_tasks_.push_back({static_cast<int32_t>(tiles_.size()), c});
        }
        tiles_.push_back(tile);
      }
    }
  }
}

namespace {

int64_t PartialsFloats(int32_t queries, int32_t head_size) {
  return (int64_t{2} * queries + int64_t{queries} * PaddedHeadSize(head_size) + 15) / 16 * 16;
}

}  // namespace

CpuAttention::Scratch CpuAttention::ScratchOf(int32_t rank, const AttentionArgs& args) {
  const int32_t head_size = args.pool->layout.head_size;
  const int32_t queries = tile_queries_;
  const int64_t q_floats = int64_t{queries} * PaddedHeadSize(head_size);
  const int64_t partials_floats = PartialsFloats(queries, head_size);
  const int64_t kernel_floats = kernels::AttentionScratchFloats(queries);
  constexpr int64_t kGroups = kAttentionChunk / kKeyGroup;
  constexpr int64_t kPointerFloats = 2 * kGroups * sizeof(std::byte*) / sizeof(float);
  const int64_t bounds_floats = (int64_t{2} * queries + 15) / 16 * 16;
  auto* at = scratch_[static_cast<size_t>(rank)].Grow<float>(
      kPointerFloats + bounds_floats + q_floats + 2 * partials_floats + kernel_floats);
  Scratch scratch;
  scratch.keys = reinterpret_cast<const std::byte**>(at);
  scratch.values = scratch.keys + kGroups;
  at += kPointerFloats;
  scratch.begins = reinterpret_cast<int32_t*>(at);
  scratch.ends = scratch.begins + queries;
  at += bounds_floats;
  scratch.q = at;
  scratch.partials = at + q_floats;
  scratch.totals = scratch.partials + partials_floats;
  scratch.kernel = scratch.totals + partials_floats;
  return scratch;
}

AttentionPartials CpuAttention::PartialsAt(float* memory) const {
  return {memory, memory + tile_queries_, memory + 2 * tile_queries_};
}

void CpuAttention::LoadQueries(const AttentionArgs& args, const Tile& tile, float* q) const {
  const int32_t head_size = args.pool->layout.head_size;
  const int32_t padded = PaddedHeadSize(head_size);
  const int32_t group = args.q_heads / args.pool->layout.kv_heads;
  for (int32_t i = 0; i < tile.rows * group; ++i) {
    const int64_t row = tile.sequence->row_begin + tile.row_begin + i / group;
    const int64_t head = tile.kv_head * group + i % group;
    std::memcpy(q + i * padded, args.q + (row * args.q_heads + head) * head_size,
                static_cast<size_t>(head_size) * sizeof(float));
    std::fill(q + i * padded + head_size, q + (i + 1) * padded, 0.0F);
  }
}

// Where the keys and values of positions origin + [seen.begin, seen.end) lie, from the first of
// their sixteen on.
void CpuAttention::FillGroups(const AttentionArgs& args, const Tile& tile, int32_t origin,
                              Span seen, const Scratch& scratch) {
  const KvLayout& layout = args.pool->layout;
  const int64_t token_bytes = layout.head_size * layout.element_bytes();
  const int64_t head_offset = tile.kv_head * layout.head_bytes();
  for (int32_t group = seen.begin / 16 * 16 / kKeyGroup; group * kKeyGroup < seen.end; ++group) {
    const int32_t position = origin + group * kKeyGroup;
    const auto index = static_cast<size_t>(position / layout.tokens_per_block);
    const std::byte* keys = Plane(*args.pool, tile.sequence->block_table[index], args.layer, false);
    scratch.keys[group] = keys + head_offset + position % layout.tokens_per_block * token_bytes;
    scratch.values[group] = scratch.keys[group] + layout.plane_bytes();
  }
}

// Queries of the tile against one chunk.
void CpuAttention::ComputeChunk(const AttentionArgs& args, const Tile& tile, int32_t chunk,
                                const Scratch& scratch, const AttentionPartials& partials) const {
  const KvLayout& layout = args.pool->layout;
  const int32_t group = args.q_heads / layout.kv_heads;
  const int32_t origin = chunk * kAttentionChunk;
  const AttentionSequence& sequence = *tile.sequence;
  int32_t seen_begin = kAttentionChunk;
  int32_t seen_end = 0;
  for (int32_t i = 0; i < tile.rows * group; ++i) {
    const int32_t position = sequence.position_begin + tile.row_begin + i / group;
    const int32_t first = FirstSeen(position, args.window);
    scratch.begins[i] = std::clamp(first - origin, 0, kAttentionChunk);
    scratch.ends[i] = std::clamp(position + 1 - origin, 0, kAttentionChunk);
    if (scratch.begins[i] >= scratch.ends[i]) continue;
    seen_begin = std::min(seen_begin, scratch.begins[i]);
    seen_end = std::max(seen_end, scratch.ends[i]);
  }
  FillGroups(args, tile, origin, {seen_begin, seen_end}, scratch);
  const kernels::AttentionChunk work = {
      .queries = tile.rows * group,
      .head_size = layout.head_size,
      .halves = layout.dtype == DType::kF16,
      .scale = args.scale,
      .softcap = args.softcap,
      .q = scratch.q,
      .begins = scratch.begins,
      .ends = scratch.ends,
      .keys = scratch.keys,
      .values = scratch.values,
  };
  kernels_.attend_chunk(work, scratch.kernel, partials);
}

void CpuAttention::WriteOutput(const AttentionArgs& args, const Tile& tile,
                               const AttentionPartials& all) const {
  const int32_t head_size = args.pool->layout.head_size;
  const int32_t padded = PaddedHeadSize(head_size);
  const int32_t group = args.q_heads / args.pool->layout.kv_heads;
  for (int32_t i = 0; i < tile.rows * group; ++i) {
    const int64_t row = tile.sequence->row_begin + tile.row_begin + i / group;
    const int64_t head = tile.kv_head * group + i % group;
    float* out = args.out + (row * args.q_heads + head) * head_size;
    std::memcpy(out, all.sums + i * padded, static_cast<size_t>(head_size) * sizeof(float));
    kernels_.scale(out, 1.0F / all.totals[i], head_size);
  }
}

void CpuAttention::AttendTile(const AttentionArgs& args, const Tile& tile, int32_t rank) {
  const Scratch scratch = ScratchOf(rank, args);
  const int32_t head_size = args.pool->layout.head_size;
  const int32_t queries = tile.rows * (args.q_heads / args.pool->layout.kv_heads);
  const AttentionPartials next = PartialsAt(scratch.partials);
  const AttentionPartials all = PartialsAt(scratch.totals);
  LoadQueries(args, tile, scratch.q);
  std::fill_n(all.totals, queries, 0.0F);
  for (int32_t c = tile.chunk_begin; c < tile.chunk_end; ++c) {
    ComputeChunk(args, tile, c, scratch, next);
    kernels_.merge_partials(queries, head_size, next, all);
  }
  WriteOutput(args, tile, all);
}

void CpuAttention::AttendByChunks(const AttentionArgs& args) {
  const int32_t head_size = args.pool->layout.head_size;
  const int32_t group = args.q_heads / args.pool->layout.kv_heads;
  const int64_t slot = PartialsFloats(tile_queries_, head_size);
  const auto slots = static_cast<int64_t>(chunk_tasks_.size());
  auto* memory = partials_.Grow<float>((slots + 1) * slot);
  for (int32_t rank = 0; rank < pool_.threads(); ++rank) ScratchOf(rank, args);
  pool_.Run(slots, [&](int64_t index, int32_t rank) {
    const ChunkTask& task = chunk_tasks_[static_cast<size_t>(index)];
    const Tile& tile = tiles_[static_cast<size_t>(task.tile)];
    const Scratch scratch = ScratchOf(rank, args);
    LoadQueries(args, tile, scratch.q);
    ComputeChunk(args, tile, task.chunk, scratch, PartialsAt(memory + index * slot));
  });
  const AttentionPartials all = PartialsAt(memory + slots * slot);
  for (const Tile& tile : tiles_) {
    const int32_t queries = tile.rows * group;
    std::fill_n(all.totals, queries, 0.0F);
    for (int32_t c = 0; c < tile.chunk_end - tile.chunk_begin; ++c) {
      const int64_t index = tile.partials_begin + c;
      kernels_.merge_partials(queries, head_size, PartialsAt(memory + index * slot), all);
    }
    WriteOutput(args, tile, all);
  }
}

}  // namespace polysil

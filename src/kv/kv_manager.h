// KvManager: where the KV of every sequence lies: block tables over one pool, and the prefix cache.
// It works with ids, counts and token ids; it knows no bytes, device, clock, thread or Sequence.
// Owned by EngineCore, used by Scheduler, on the engine thread.
//
// A table is held by its sequence (Open .. Close) and by each step in flight that reads or writes
// it (HoldForStep .. ReleaseFromStep). A block is held by every table it stands in, and by the
// prefix cache while that knows it. Closing a table excludes it at once; its blocks go when no step
// holds it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/prefix_cache.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"

namespace polysil {

struct KvOptions {
  int32_t blocks = 0;
  int32_t tokens_per_block = 16;  // at most kTokensPerBlockMax
  bool prefix_cache = true;
  DigestFunction digest = &Sha256;
};

struct KvStats {
  int32_t blocks_total = 0;
  int32_t blocks_used = 0;    // in a table
  int32_t blocks_cached = 0;  // free to take, but hold a known prefix
  uint64_t query_tokens = 0;  // prompt tokens that were looked up, once per sequence
  uint64_t hit_tokens = 0;    // those of them that were found
};

class KvManager final {
 public:
  explicit KvManager(const KvOptions& options);
  KvManager(const KvManager&) = delete;
  KvManager& operator=(const KvManager&) = delete;

  // A table without blocks. reads_cache: may start with blocks of the prefix cache. Its own blocks
  // are offered to the cache in any case.
  BlockTableId Open(std::string_view salt, bool reads_cache);
  // Gives an empty table room for all of `tokens`, the longest known prefix taken from the cache,
  // and returns the length of that prefix: full blocks, never the last token, whose logits are
  // wanted. Absent: fewer than `blocks_spared` blocks would stay free; nothing has changed.
  std::optional<int32_t> TryAdmit(BlockTableId table, std::span<const TokenId> tokens,
                                  int32_t blocks_spared);
  // Room for positions [0, tokens). False: not enough blocks are free; nothing has changed.
  bool TryExtend(BlockTableId table, int32_t tokens);
  // Positions [0, tokens_computed) are written and right: full blocks among them can now be found
  // by others. Only after the step that filled them succeeded. `tokens`: of the whole sequence.
  void Publish(BlockTableId table, std::span<const TokenId> tokens, int32_t tokens_computed);
  // Preemption: the table gives up its blocks and stays open. Only without a step in flight.
  void Empty(BlockTableId table);
  // The sequence is over. The id must not be used any more, but by steps in flight.
  void Close(BlockTableId table);

  void HoldForStep(BlockTableId table);
  void ReleaseFromStep(BlockTableId table);

  std::span<const BlockId> blocks(BlockTableId table) const { return at(table).blocks; }
  // Blocks that a table could get: free ones and idle cached ones.
  int32_t blocks_available() const { return pool_.blocks_free() + cache_.blocks_idle(); }
  int32_t tokens_per_block() const { return tokens_per_block_; }
  KvStats stats() const;

  // INTERNAL where a count differs from what is held, or a block that could still be written stands
  // in two tables. O(blocks + tables).
  Status CheckIntegrity() const;

 private:
  const BlockTable& at(BlockTableId table) const;
  BlockTable& at(BlockTableId table);
  int32_t BlocksFor(int64_t tokens) const;
  PrefixBlock ContentOf(BlockTable& table, std::span<const TokenId> tokens, int32_t block_index);
  // Fills hits_ with the longest known prefix of `tokens`.
  void LookUp(BlockTable& table, std::span<const TokenId> tokens);
  void TakeHits(BlockTable& table);
  void AppendBlocks(BlockTable& table, int32_t blocks);
  void ReleaseBlocks(BlockTable& table);
  // The last step or the sequence is gone.
  void Recycle(BlockTableId table);

  const int32_t tokens_per_block_;
  const bool prefix_cache_;
  const DigestFunction digest_;
  BlockPool pool_;
  PrefixCache cache_;
  std::vector<BlockTable> tables_;         // by BlockTableId
  std::vector<BlockTableId> tables_free_;  // closed and without a step
  std::vector<PrefixCache::Hit> hits_;     // scratch of LookUp
  uint64_t query_tokens_ = 0;
  uint64_t hit_tokens_ = 0;
};

}  // namespace polysil

// KvManager: where the KV of every sequence lies: block tables over one pool, the prefix cache, and
// a host tier for what the cache must give up. It works with ids, counts and token ids; it knows no
// bytes, device, clock, thread or Sequence. Owned by EngineCore, used by Scheduler, on the engine
// thread.
//
// A table is held by its sequence (Open .. Close) and by each step in flight that reads or writes
// it (HoldForStep .. ReleaseFromStep). A block is held by every table it stands in, and by the
// prefix cache while that knows it. Closing a table excludes it at once; its blocks go when no step
// holds it.
//
// A prefix is computed once: a table whose next block is being computed by another waits for it
// (WaitsForPrefix), holding nothing, until that table has published what they share, or gives up.
//
// Host tier: an evicted block is copied to the host on the next step and found there once that step
// succeeded. A table that finds blocks there is given blocks of the device; the copies go with its
// first row, so that they share its fate: they are findable only after that row succeeded. So a
// preempted sequence is swapped: its full blocks stay known, move to the host where room is
// needed, and come back when it resumes; only its last, partial block is computed again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/prefix_cache.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/kv_event.h"
#include "polysil/core/step.h"

namespace polysil {

struct KvOptions {
  int32_t blocks = 0;
  int32_t tokens_per_block = 16;  // at most kTokensPerBlockMax
  bool prefix_cache = true;
  int32_t host_blocks = 0;       // of the host tier; needs the prefix cache
  double block_copy_rows = 1.0;  // see StepLimits; not less than tokens_per_block: no copies
  DigestFunction digest = &Sha256;
};

struct KvStats {
  int32_t blocks_total = 0;
  int32_t blocks_used = 0;         // in a table
  int32_t blocks_cached = 0;       // free to take, but hold a known prefix
  uint64_t query_tokens = 0;       // prompt tokens that were looked up, once per prompt
  uint64_t hit_tokens = 0;         // those of them that were found
  int32_t host_blocks_total = 0;   // of the host tier
  int32_t host_blocks_used = 0;    // hold a known prefix, or are about to
  uint64_t blocks_copied_out = 0;  // to the host tier
  uint64_t blocks_copied_in = 0;   // back from it
};

class KvManager final {
 public:
  explicit KvManager(const KvOptions& options);
  KvManager(const KvManager&) = delete;
  KvManager& operator=(const KvManager&) = delete;

  // What the clock shows; never falls.
  void SetNow(int64_t now_ns);

  // A table without blocks.
  BlockTableId Open(const BlockTableOptions& options);
  // Gives an empty table room for all of `tokens`, the longest known prefix taken from the cache,
  // and returns the length of that prefix: full blocks, never the last token, whose logits are
  // wanted. Absent: fewer than `blocks_spared` blocks would stay free, or it waits for a prefix;
  // nothing has changed.
  std::optional<int32_t> TryAdmit(BlockTableId table, std::span<const TokenId> tokens,
                                  int32_t blocks_spared);
  // Another table still computes what TryAdmit found to be wanted by this one. O(1).
  bool WaitsForPrefix(BlockTableId table) const;
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

  // Copies that the step must carry: evictions so far, then what the table of each sequence that
  // has its first row in the step needs. Appended to `copies`; once each.
  void TakeEvictions(int64_t step_id, std::vector<KvCopy>& copies);
  void TakeArrivals(BlockTableId table, std::vector<KvCopy>& copies);
  // The step came back; whether its copies can be relied on. In order.
  void FinishCopies(int64_t step_id, bool succeeded);

  std::span<const BlockId> blocks(BlockTableId table) const { return at(table).blocks; }
  // Blocks that a table could get: free ones and idle cached ones.
  int32_t blocks_available() const {
    return pool_.blocks_free() + cache_.blocks_idle(KvTier::kDevice);
  }
  int32_t tokens_per_block() const { return tokens_per_block_; }
  KvStats stats() const;
  // What became findable and what no longer is, since ClearEvents.
  const KvEvents& events() const { return events_; }
  void ClearEvents() { events_.Clear(); }

  // INTERNAL where a count differs from what is held, or a block that could still be written stands
  // in two tables. O(blocks + tables).
  Status CheckIntegrity() const;

 private:
  // A block of the host tier that a step in flight fills.
  struct Filling {
    int64_t step_id = 0;
    BlockId host_block;
  };

  const BlockTable& at(BlockTableId table) const;
  BlockTable& at(BlockTableId table);
  int32_t BlocksFor(int64_t tokens) const;
  // Names of the first `blocks` blocks.
  void HashUpTo(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) const;
  PrefixBlock ContentOf(BlockTable& table, std::span<const TokenId> tokens,
                        int32_t block_index) const;
  // Fills hits_ with the longest known prefix of `tokens`: on the device, then on the host.
  void LookUp(BlockTable& table, std::span<const TokenId> tokens);
  int32_t HitsOnDevice() const;
  bool TryFollow(BlockTable& table, std::span<const TokenId> tokens);
  void TakeHits(BlockTable& table);
  void Announce(BlockTableId id, int32_t block_index);
  void Withdraw(BlockTable& table);
  void Retain(const BlockTable& table, BlockId block, int32_t block_index);
  void AppendBlocks(BlockTable& table, int32_t blocks);
  void Evict(BlockId block);
  std::optional<BlockId> TakeHostBlock();
  void ReleaseHost(BlockId host_block);
  void ReleaseBlocks(BlockTable& table);
  // The last step or the sequence is gone.
  void Recycle(BlockTableId table);
  void RecordStored(KvPlace place, const BlockHash& parent);
  void RecordRemoved(KvPlace place);
  Status CheckHostTier() const;

  const int32_t tokens_per_block_;
  const bool prefix_cache_;
  const bool host_pays_;  // there is a host tier, and copying is cheaper than computing
  const DigestFunction digest_;
  BlockPool pool_;
  BlockPool host_pool_;
  PrefixCache cache_;
  std::vector<BlockTable> tables_;         // by BlockTableId
  std::vector<BlockTableId> tables_free_;  // closed and without a step
  // By the name of the next block that it computes.
  absl::flat_hash_map<BlockHash, BlockTableId> announced_;
  std::vector<PrefixCache::Hit> hits_;  // scratch of LookUp
  std::vector<KvCopy> evictions_;       // the next step carries them
  std::vector<Filling> filling_;        // in the order of the steps
  KvEvents events_;
  int64_t now_ns_ = 0;
  uint64_t query_tokens_ = 0;
  uint64_t hit_tokens_ = 0;
  uint64_t blocks_copied_out_ = 0;
  uint64_t blocks_copied_in_ = 0;
};

}  // namespace polysil

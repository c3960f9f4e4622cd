#include "kv/kv_manager.h"

#include <algorithm>

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {

KvManager::KvManager(const KvOptions& options)
    : tokens_per_block_(options.tokens_per_block),
      prefix_cache_(options.prefix_cache),
      digest_(options.digest),
      pool_(options.blocks),
      cache_(options.blocks, options.tokens_per_block) {
  CHECK(tokens_per_block_ > 0 && tokens_per_block_ <= kTokensPerBlockMax, "blocks of {} tokens",
        tokens_per_block_);
}

BlockTableId KvManager::Open(std::string_view salt, bool reads_cache) {
  if (tables_free_.empty()) {
    tables_free_.push_back(BlockTableId{static_cast<int32_t>(tables_.size())});
    tables_.emplace_back();
  }
  const BlockTableId id = tables_free_.back();
  tables_free_.pop_back();
  // Used again as it is, so that its vectors keep their room.
  BlockTable& table = tables_[static_cast<size_t>(id.value)];
  CHECK(!table.open && table.blocks.empty() && table.steps_in_flight == 0, "table {} is in use",
        id.value);
  table.hashes.clear();
  table.salt = salt;
  table.reads_cache = reads_cache && prefix_cache_;
  table.counted = false;
  table.open = true;
  return id;
}

std::optional<int32_t> KvManager::TryAdmit(BlockTableId id, std::span<const TokenId> tokens,
                                           int32_t blocks_spared) {
  BlockTable& table = at(id);
  CHECK(table.open && table.blocks.empty(), "table {} has blocks", id.value);
  CHECK(!tokens.empty(), "table {} is for no token", id.value);
  LookUp(table, tokens);
  int32_t hits_idle = 0;
  for (const PrefixCache::Hit& hit : hits_) hits_idle += cache_.IsIdle(hit.block) ? 1 : 0;
  const int32_t blocks_new =
      BlocksFor(static_cast<int64_t>(tokens.size())) - static_cast<int32_t>(hits_.size());
  if (blocks_new + blocks_spared > blocks_available() - hits_idle) return std::nullopt;

  TakeHits(table);
  AppendBlocks(table, blocks_new);
  const int32_t tokens_cached = table.blocks_known * tokens_per_block_;
  if (table.reads_cache && !table.counted) {
    table.counted = true;
    query_tokens_ += tokens.size();
    hit_tokens_ += static_cast<uint64_t>(tokens_cached);
  }
  return tokens_cached;
}

bool KvManager::TryExtend(BlockTableId id, int32_t tokens) {
  BlockTable& table = at(id);
  CHECK(table.open, "table {} is closed", id.value);
  const int32_t blocks_new = BlocksFor(tokens - (SEEDED_BUG(extend_off_by_one) ? 1 : 0)) -
                             static_cast<int32_t>(table.blocks.size());
  if (blocks_new <= 0) return true;
  if (blocks_new > blocks_available()) return false;
  AppendBlocks(table, blocks_new);
  return true;
}

void KvManager::Publish(BlockTableId id, std::span<const TokenId> tokens, int32_t tokens_computed) {
  if (!prefix_cache_) return;
  BlockTable& table = at(id);
  CHECK(table.open, "table {} is closed", id.value);
  CHECK(tokens_computed <= static_cast<int32_t>(tokens.size()), "{} of {} tokens computed",
        tokens_computed, tokens.size());
  while ((table.blocks_known + 1) * int64_t{tokens_per_block_} <= tokens_computed) {
    const BlockId block = table.blocks[static_cast<size_t>(table.blocks_known)];
    const PrefixCache::Published published =
        cache_.Publish(block, ContentOf(table, tokens, table.blocks_known));
    if (published.added) pool_.AddReference(block);
    if (published.dropped) pool_.Release(*published.dropped);
    table.link = published.link;
    ++table.blocks_known;
  }
}

void KvManager::Empty(BlockTableId id) {
  BlockTable& table = at(id);
  CHECK(table.open && table.steps_in_flight == 0, "table {}: {} steps in flight", id.value,
        table.steps_in_flight);
  ReleaseBlocks(table);
}

void KvManager::Close(BlockTableId id) {
  BlockTable& table = at(id);
  CHECK(table.open, "table {} is closed already", id.value);
  table.open = false;
  if (table.steps_in_flight == 0) Recycle(id);
}

void KvManager::HoldForStep(BlockTableId id) {
  BlockTable& table = at(id);
  CHECK(table.open, "table {} is closed", id.value);
  ++table.steps_in_flight;
}

void KvManager::ReleaseFromStep(BlockTableId id) {
  BlockTable& table = at(id);
  CHECK(table.steps_in_flight > 0, "table {} has no step in flight", id.value);
  if (--table.steps_in_flight == 0 && !table.open && !SEEDED_BUG(leak_a_closed_table)) Recycle(id);
}

KvStats KvManager::stats() const {
  return KvStats{.blocks_total = pool_.blocks_total(),
                 .blocks_used = pool_.blocks_total() - blocks_available(),
                 .blocks_cached = cache_.blocks_idle(),
                 .query_tokens = query_tokens_,
                 .hit_tokens = hit_tokens_};
}

Status KvManager::CheckIntegrity() const {
  RETURN_IF_ERROR(pool_.CheckIntegrity());
  RETURN_IF_ERROR(cache_.CheckIntegrity());
  std::vector<int32_t> holders(static_cast<size_t>(pool_.blocks_total()));
  std::vector<int32_t> writers(holders.size());  // tables in which the block is not settled
  for (size_t i = 0; i < tables_.size(); ++i) {
    const BlockTable& table = tables_[i];
    if (!table.open && table.steps_in_flight == 0 && !table.blocks.empty()) {
      return Internal("table {} is closed and holds {} blocks", i, table.blocks.size());
    }
    for (size_t index = 0; index < table.blocks.size(); ++index) {
      const size_t block = static_cast<size_t>(table.blocks[index].value);
      ++holders[block];
      writers[block] += static_cast<int32_t>(index) >= table.blocks_known ? 1 : 0;
    }
  }
  for (size_t i = 0; i < holders.size(); ++i) {
    const BlockId block{static_cast<int32_t>(i)};
    if (writers[i] > 0 && (holders[i] > 1 || cache_.Holds(block))) {
      return Internal("block {} can be written and is shared by {} tables", i, holders[i]);
    }
    const int32_t expected = holders[i] + (cache_.Holds(block) ? 1 : 0);
    if (pool_.references(block) != expected) {
      return Internal("block {} has {} references, {} hold it", i, pool_.references(block),
                      expected);
    }
    if (cache_.Holds(block) && cache_.IsIdle(block) != (holders[i] == 0)) {
      return Internal("block {} is idle: {}, in {} tables", i, cache_.IsIdle(block), holders[i]);
    }
  }
  return OkStatus();
}

const BlockTable& KvManager::at(BlockTableId table) const {
  CHECK(table.value >= 0 && static_cast<size_t>(table.value) < tables_.size(), "table {} of {}",
        table.value, tables_.size());
  return tables_[static_cast<size_t>(table.value)];
}

BlockTable& KvManager::at(BlockTableId table) {
  return const_cast<BlockTable&>(static_cast<const KvManager*>(this)->at(table));
}

int32_t KvManager::BlocksFor(int64_t tokens) const {
  return static_cast<int32_t>((tokens + tokens_per_block_ - 1) / tokens_per_block_);
}

PrefixBlock KvManager::ContentOf(BlockTable& table, std::span<const TokenId> tokens,
                                 int32_t block_index) {
  const size_t index = static_cast<size_t>(block_index);
  const size_t size = static_cast<size_t>(tokens_per_block_);
  if (table.hashes.empty()) table.root = RootHash(table.salt, digest_);
  while (table.hashes.size() <= index) {
    const size_t next = table.hashes.size();
    const BlockHash& parent = next == 0 ? table.root : table.hashes.back();
    table.hashes.push_back(NextHash(parent, tokens.subspan(next * size, size), digest_));
  }
  return PrefixBlock{.hash = table.hashes[index],
                     .parent = table.link,
                     .salt = table.salt,
                     .tokens = tokens.subspan(index * size, size)};
}

void KvManager::LookUp(BlockTable& table, std::span<const TokenId> tokens) {
  hits_.clear();
  if (!table.reads_cache) return;
  const size_t tokens_kept = SEEDED_BUG(hit_the_last_token) ? 0 : 1;
  const int32_t blocks_max =
      static_cast<int32_t>((tokens.size() - tokens_kept) / tokens_per_block_);
  PrefixLink parent = kRootLink;
  for (int32_t index = 0; index < blocks_max; ++index) {
    PrefixBlock wanted = ContentOf(table, tokens, index);
    wanted.parent = parent;
    const std::optional<PrefixCache::Hit> hit = cache_.Find(wanted);
    if (!hit) return;
    hits_.push_back(*hit);
    parent = hit->link;
  }
}

void KvManager::TakeHits(BlockTable& table) {
  for (const PrefixCache::Hit& hit : hits_) {
    if (cache_.IsIdle(hit.block)) cache_.MarkBusy(hit.block);
    pool_.AddReference(hit.block);
    table.blocks.push_back(hit.block);
    table.link = hit.link;
  }
  table.blocks_known = static_cast<int32_t>(hits_.size());
}

void KvManager::AppendBlocks(BlockTable& table, int32_t blocks) {
  for (int32_t i = 0; i < blocks; ++i) {
    std::optional<BlockId> block = pool_.TryAllocate();
    if (!block) {
      const std::optional<BlockId> evicted = cache_.EvictOldest();
      CHECK(evicted.has_value(), "no block is left of {}", pool_.blocks_total());
      CHECK(pool_.Release(*evicted) == 0, "evicted block {} is in use", evicted->value);
      block = pool_.TryAllocate();
    }
    table.blocks.push_back(*block);
  }
}

void KvManager::ReleaseBlocks(BlockTable& table) {
  // From the tail, so that a chain is evicted from its tail.
  if (SEEDED_BUG(evict_from_the_head)) std::ranges::reverse(table.blocks);
  for (auto block = table.blocks.rbegin(); block != table.blocks.rend(); ++block) {
    if (pool_.Release(*block) == 1 && cache_.Holds(*block)) cache_.MarkIdle(*block);
  }
  table.blocks.clear();
  table.blocks_known = 0;
  table.link = kRootLink;
}

void KvManager::Recycle(BlockTableId id) {
  ReleaseBlocks(at(id));
  tables_free_.push_back(id);
}

}  // namespace polysil

#include "kv/kv_manager.h"

#include <algorithm>

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

// An admitted table has room to grow by so many blocks; where it grows by more, it doubles now and
// then. A block takes 20 bytes of it.
constexpr size_t kBlocksRoom = 256;

}  // namespace

KvManager::KvManager(const KvOptions& options)
    : tokens_per_block_(options.tokens_per_block),
      prefix_cache_(options.prefix_cache),
      host_pays_(options.prefix_cache && options.block_copy_rows < options.tokens_per_block),
      digest_(options.digest),
      pool_(options.blocks),
      host_pool_(host_pays_ ? options.host_blocks : 0),
      cache_(options.blocks, host_pool_.blocks_total(), options.tokens_per_block) {
  CHECK(options.blocks > 0, "a pool of {} blocks", options.blocks);
  CHECK(tokens_per_block_ > 0 && tokens_per_block_ <= kTokensPerBlockMax, "blocks of {} tokens",
        tokens_per_block_);
  events_.events.push_back({.kind = KvEventKind::kCleared});
}

void KvManager::SetNow(int64_t now_ns) {
  now_ns_ = now_ns;
  cache_.EndWishes(now_ns);
}

BlockTableId KvManager::Open(const BlockTableOptions& options) {
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
  table.salt = options.salt;
  table.retention.clear();
  if (options.retention != nullptr) table.retention = *options.retention;
  table.reads_cache = options.reads_cache && prefix_cache_;
  table.counts = options.counted && table.reads_cache;
  table.priority = options.priority;
  table.leader.reset();
  table.open = true;
  return id;
}

std::optional<int32_t> KvManager::TryAdmit(BlockTableId id, std::span<const TokenId> tokens,
                                           int32_t blocks_spared) {
  BlockTable& table = at(id);
  CHECK(table.open && table.blocks.empty(), "table {} has blocks", id.value);
  CHECK(!tokens.empty(), "table {} is for no token", id.value);
  LookUp(table, tokens);
  if (TryFollow(table, tokens)) return std::nullopt;
  int32_t hits_idle = 0;
  for (const PrefixCache::Hit& hit : hits_) {
    hits_idle += hit.place.tier == KvTier::kDevice && cache_.IsIdle(hit.place) ? 1 : 0;
  }
  const int32_t blocks_new = BlocksFor(static_cast<int64_t>(tokens.size())) - HitsOnDevice();
  if (blocks_new + blocks_spared > blocks_available() - hits_idle) return std::nullopt;

  const size_t room =
      static_cast<size_t>(BlocksFor(static_cast<int64_t>(tokens.size()))) + kBlocksRoom;
  table.blocks.reserve(room);
  if (prefix_cache_) table.hashes.reserve(room);
  TakeHits(table);
  AppendBlocks(table, blocks_new);
  const int32_t blocks_cached = static_cast<int32_t>(hits_.size());
  if (prefix_cache_) {
    table.blocks_planned = static_cast<int32_t>(tokens.size()) / tokens_per_block_;
    HashUpTo(table, tokens, table.blocks_planned);
    Announce(id, blocks_cached);
  }
  const int32_t tokens_cached = blocks_cached * tokens_per_block_;
  if (table.counts) {
    table.counts = false;
    query_tokens_ += tokens.size();
    hit_tokens_ += static_cast<uint64_t>(tokens_cached);
  }
  return tokens_cached;
}

bool KvManager::WaitsForPrefix(BlockTableId id) const {
  const BlockTable& table = at(id);
  if (!table.leader) return false;
  const BlockTable& leader = at(*table.leader);
  return leader.life == table.leader_life && leader.blocks_known < table.leader_blocks;
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
    const int32_t index = table.blocks_known;
    const BlockId block = table.blocks[static_cast<size_t>(index)];
    const PrefixCache::Published published = cache_.Publish(block, ContentOf(table, tokens, index));
    if (published.added) pool_.AddReference(block);
    if (published.dropped) {
      if (published.news) RecordRemoved(*published.dropped);
      const bool on_host = published.dropped->tier == KvTier::kHost;
      (on_host ? host_pool_ : pool_).Release(published.dropped->block);
    }
    const size_t parent = static_cast<size_t>(index) - 1;
    if (published.news) {
      RecordStored(OnDevice(block), index == 0 ? table.root : table.hashes[parent]);
    }
    Retain(table, published.holder, index);
    table.link = published.link;
    ++table.blocks_known;
  }
  if (table.announced && table.blocks_known > table.block_announced) {
    Withdraw(table);
    Announce(id, table.blocks_known);
  }
}

void KvManager::Empty(BlockTableId id) {
  BlockTable& table = at(id);
  CHECK(table.open && table.steps_in_flight == 0, "table {}: {} steps in flight", id.value,
        table.steps_in_flight);
  ++table.life;
  ReleaseBlocks(table);
}

void KvManager::Close(BlockTableId id) {
  BlockTable& table = at(id);
  CHECK(table.open, "table {} is closed already", id.value);
  table.open = false;
  ++table.life;
  Withdraw(table);
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
                 .blocks_cached = cache_.blocks_idle(KvTier::kDevice),
                 .query_tokens = query_tokens_,
                 .hit_tokens = hit_tokens_,
                 .host_blocks_total = host_pool_.blocks_total(),
                 .host_blocks_used = host_pool_.blocks_total() - host_pool_.blocks_free(),
                 .blocks_copied_out = blocks_copied_out_,
                 .blocks_copied_in = blocks_copied_in_};
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

void KvManager::HashUpTo(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) const {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  if (table.hashes.empty()) table.root = RootHash(table.salt, digest_);
  while (table.hashes.size() < static_cast<size_t>(blocks)) {
    const size_t next = table.hashes.size();
    const BlockHash& parent = next == 0 ? table.root : table.hashes.back();
    table.hashes.push_back(NextHash(parent, tokens.subspan(next * size, size), digest_));
  }
}

PrefixBlock KvManager::ContentOf(BlockTable& table, std::span<const TokenId> tokens,
                                 int32_t block_index) const {
  HashUpTo(table, tokens, block_index + 1);
  const size_t size = static_cast<size_t>(tokens_per_block_);
  return PrefixBlock{.hash = table.hashes[static_cast<size_t>(block_index)],
                     .parent = table.link,
                     .salt = table.salt,
                     .tokens = tokens.subspan(static_cast<size_t>(block_index) * size, size)};
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
    // A block of the device behind one that is only on its way there could not be shared in order.
    const bool was_on_host = !hits_.empty() && hits_.back().place.tier == KvTier::kHost;
    if (was_on_host && hit->place.tier == KvTier::kDevice) return;
    hits_.push_back(*hit);
    parent = hit->link;
  }
}

int32_t KvManager::HitsOnDevice() const {
  return static_cast<int32_t>(std::ranges::count_if(
      hits_, [](const PrefixCache::Hit& hit) { return hit.place.tier == KvTier::kDevice; }));
}

bool KvManager::TryFollow(BlockTable& table, std::span<const TokenId> tokens) {
  table.leader.reset();
  const int32_t blocks_max = static_cast<int32_t>((tokens.size() - 1) / tokens_per_block_);
  const int32_t hits = static_cast<int32_t>(hits_.size());
  if (!table.reads_cache || hits == blocks_max || announced_.empty()) return false;
  const auto found = announced_.find(table.hashes[static_cast<size_t>(hits)]);
  if (found == announced_.end()) return false;
  const BlockTable& leader = at(found->second);
  if (leader.priority < table.priority) return false;
  // Equal names decide only whether to wait; what is taken then is compared token by token.
  const int32_t comparable = std::min(leader.blocks_planned, blocks_max);
  HashUpTo(table, tokens, comparable);
  const auto end = table.hashes.begin() + comparable;
  const int32_t agreed = static_cast<int32_t>(
      std::mismatch(table.hashes.begin(), end, leader.hashes.begin()).first - table.hashes.begin());
  if (agreed <= hits) return false;
  table.leader = found->second;
  table.leader_life = leader.life;
  table.leader_blocks = agreed;
  return true;
}

void KvManager::TakeHits(BlockTable& table) {
  for (const PrefixCache::Hit& hit : hits_) {
    if (cache_.IsIdle(hit.place)) cache_.MarkBusy(hit.place);
    if (hit.place.tier == KvTier::kHost) {
      host_pool_.AddReference(hit.place.block);
      table.host_blocks.push_back(hit.place.block);
      continue;
    }
    pool_.AddReference(hit.place.block);
    Retain(table, hit.place.block, table.blocks_known);
    table.blocks.push_back(hit.place.block);
    table.link = hit.link;
    ++table.blocks_known;
  }
}

void KvManager::Announce(BlockTableId id, int32_t block_index) {
  BlockTable& table = at(id);
  if (block_index >= table.blocks_planned) return;
  table.block_announced = block_index;
  table.announced =
      announced_.try_emplace(table.hashes[static_cast<size_t>(block_index)], id).second;
}

void KvManager::Withdraw(BlockTable& table) {
  if (!table.announced) return;
  announced_.erase(table.hashes[static_cast<size_t>(table.block_announced)]);
  table.announced = false;
}

// What hangs on a block needs it, so it is kept for as long as any of that.
void KvManager::Retain(const BlockTable& table, BlockId block, int32_t block_index) {
  int64_t keep_ns = 0;
  for (const RetentionHint& hint : table.retention) {
    if (hint.tokens > int64_t{block_index} * tokens_per_block_) {
      keep_ns = std::max(keep_ns, hint.keep_ns);
    }
  }
  if (keep_ns == 0) return;
  cache_.TryRetain(block, {.keep_ns = keep_ns, .priority = table.priority, .tenant = table.salt});
}

void KvManager::AppendBlocks(BlockTable& table, int32_t blocks) {
  for (int32_t i = 0; i < blocks; ++i) {
    std::optional<BlockId> block = pool_.TryAllocate();
    if (!block) {
      const std::optional<BlockId> oldest = cache_.NextToGo(KvTier::kDevice);
      CHECK(oldest.has_value(), "no block is left of {}", pool_.blocks_total());
      Evict(*oldest);
      CHECK(pool_.Release(*oldest) == 0, "evicted block {} is in use", oldest->value);
      block = pool_.TryAllocate();
    }
    table.blocks.push_back(*block);
  }
}

void KvManager::ReleaseBlocks(BlockTable& table) {
  Withdraw(table);
  for (const BlockId host_block : table.host_blocks) ReleaseHost(host_block);
  table.host_blocks.clear();
  // From the tail, so that a chain is evicted from its tail.
  if (SEEDED_BUG(evict_from_the_head)) std::ranges::reverse(table.blocks);
  for (auto block = table.blocks.rbegin(); block != table.blocks.rend(); ++block) {
    if (pool_.Release(*block) == 1 && cache_.Holds(OnDevice(*block))) {
      cache_.MarkIdle(OnDevice(*block), now_ns_);
    }
  }
  table.blocks.clear();
  table.blocks_known = 0;
  table.blocks_planned = 0;
  table.link = kRootLink;
}

void KvManager::Recycle(BlockTableId id) {
  ReleaseBlocks(at(id));
  tables_free_.push_back(id);
}

}  // namespace polysil

// KvManager's host tier: what is evicted, copied and found again; its events; and the check of all
// its counts.
#include <vector>

#include "kv/kv_manager.h"
#include "polysil/base/check.h"

namespace polysil {

void KvManager::Evict(BlockId block) {
  RecordRemoved(OnDevice(block));
  const std::optional<BlockId> host_block = TakeHostBlock();
  if (!host_block) {
    cache_.Forget(OnDevice(block));
    return;
  }
  cache_.Demote(block, *host_block);
  evictions_.push_back({.from = OnDevice(block), .to = OnHost(*host_block)});
}

// The one idle longest makes room. Absent: all are on their way in or out.
std::optional<BlockId> KvManager::TakeHostBlock() {
  std::optional<BlockId> host_block = host_pool_.TryAllocate();
  if (host_block) return host_block;
  const std::optional<BlockId> oldest = cache_.NextToGo(KvTier::kHost);
  if (!oldest) return std::nullopt;
  RecordRemoved(OnHost(*oldest));
  cache_.Forget(OnHost(*oldest));
  CHECK(host_pool_.Release(*oldest) == 0, "evicted host block {} is in use", oldest->value);
  return host_pool_.TryAllocate();
}

void KvManager::ReleaseHost(BlockId host_block) {
  if (host_pool_.Release(host_block) == 1 && cache_.Holds(OnHost(host_block))) {
    cache_.MarkIdle(OnHost(host_block), now_ns_);
  }
}

void KvManager::TakeEvictions(int64_t step_id, std::vector<KvCopy>& copies) {
  for (const KvCopy& copy : evictions_) {
    copies.push_back(copy);
    filling_.push_back({.step_id = step_id, .host_block = copy.to.block});
  }
  evictions_.clear();
}

void KvManager::TakeArrivals(BlockTableId id, std::vector<KvCopy>& copies) {
  BlockTable& table = at(id);
  for (size_t i = 0; i < table.host_blocks.size(); ++i) {
    const BlockId block = table.blocks[static_cast<size_t>(table.blocks_known) + i];
    copies.push_back({.from = OnHost(table.host_blocks[i]), .to = OnDevice(block)});
  }
  blocks_copied_in_ += table.host_blocks.size();
  // Whatever is copied into them from now on comes with a later step. From the tail, as ever.
  for (size_t i = table.host_blocks.size(); i-- > 0;) ReleaseHost(table.host_blocks[i]);
  table.host_blocks.clear();
}

void KvManager::FinishCopies(int64_t step_id, bool succeeded) {
  size_t finished = 0;
  while (finished < filling_.size() && filling_[finished].step_id <= step_id) {
    const BlockId host_block = filling_[finished++].host_block;
    if (succeeded && cache_.Arrive(host_block)) {
      ++blocks_copied_out_;
      RecordStored(OnHost(host_block), BlockHash{});
      continue;
    }
    if (cache_.Holds(OnHost(host_block))) cache_.Forget(OnHost(host_block));
    host_pool_.Release(host_block);
  }
  filling_.erase(filling_.begin(), filling_.begin() + static_cast<ptrdiff_t>(finished));
}

void KvManager::RecordStored(KvPlace place, const BlockHash& parent) {
  events_.events.push_back({.kind = KvEventKind::kStored,
                            .tier = place.tier,
                            .hash = cache_.NameOf(place).bytes,
                            .parent = parent.bytes});
  const std::span<const TokenId> tokens = cache_.TokensOf(place);
  events_.tokens.insert(events_.tokens.end(), tokens.begin(), tokens.end());
}

void KvManager::RecordRemoved(KvPlace place) {
  events_.events.push_back(
      {.kind = KvEventKind::kRemoved, .tier = place.tier, .hash = cache_.NameOf(place).bytes});
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
    const bool known = cache_.Holds(OnDevice(block));
    if (writers[i] > 0 && (holders[i] > 1 || known)) {
      return Internal("block {} can be written and is shared by {} tables", i, holders[i]);
    }
    const int32_t expected = holders[i] + (known ? 1 : 0);
    if (pool_.references(block) != expected) {
      return Internal("block {} has {} references, {} hold it", i, pool_.references(block),
                      expected);
    }
    if (known && cache_.IsIdle(OnDevice(block)) != (holders[i] == 0)) {
      return Internal("block {} is idle: {}, in {} tables", i, cache_.IsIdle(OnDevice(block)),
                      holders[i]);
    }
  }
  return CheckHostTier();
}

Status KvManager::CheckHostTier() const {
  RETURN_IF_ERROR(host_pool_.CheckIntegrity());
  std::vector<int32_t> holders(static_cast<size_t>(host_pool_.blocks_total()));
  size_t announced = 0;
  for (const BlockTable& table : tables_) {
    for (const BlockId host_block : table.host_blocks) {
      ++holders[static_cast<size_t>(host_block.value)];
    }
    announced += table.announced ? 1 : 0;
    if (table.announced && !table.open) return Internal("a closed table announces a block");
  }
  if (announced != announced_.size()) {
    return Internal("{} tables announce a block, {} are noted", announced, announced_.size());
  }
  for (size_t i = 0; i < holders.size(); ++i) {
    const BlockId host_block{static_cast<int32_t>(i)};
    const int32_t expected = holders[i] + (cache_.Holds(OnHost(host_block)) ? 1 : 0);
    if (host_pool_.references(host_block) != expected) {
      return Internal("host block {} has {} references, {} hold it", i,
                      host_pool_.references(host_block), expected);
    }
  }
  return OkStatus();
}

}  // namespace polysil

#include "kv/retained_blocks.h"

#include "polysil/base/check.h"

namespace polysil {

bool RetainedBlocks::TryRetain(int32_t block, const RetentionWish& wish) {
  if (const auto found = records_.find(block); found != records_.end()) {
    Record& record = found->second;
    CHECK(record.idle_order == 0, "block {} is idle", block);
    record.keep_ns = std::max(record.keep_ns, wish.keep_ns);
    record.priority = std::max(record.priority, wish.priority);
    return true;
  }
  if (blocks_held() >= blocks_max_) return false;
  std::string tenant(wish.tenant);
  int32_t& held = tenant_blocks_[tenant];
  if (held >= tenant_blocks_max_) return false;
  ++held;
  records_.emplace(
      block,
      Record{.keep_ns = wish.keep_ns, .priority = wish.priority, .tenant = std::move(tenant)});
  return true;
}

void RetainedBlocks::Forget(int32_t block) {
  if (records_.empty()) return;
  const auto found = records_.find(block);
  if (found == records_.end()) return;
  if (found->second.idle_order != 0) MarkBusy(block);
  const auto tenant = tenant_blocks_.find(found->second.tenant);
  if (--tenant->second == 0) tenant_blocks_.erase(tenant);
  records_.erase(found);
}

void RetainedBlocks::MarkIdle(int32_t block, int64_t now_ns) {
  Record& record = records_.at(block);
  record.idle_order = ++orders_given_;
  record.expires_ns = now_ns + record.keep_ns;
  by_expiry_.insert({{record.expires_ns, record.idle_order}, block});
  by_priority_.insert({{record.priority, record.idle_order}, block});
}

void RetainedBlocks::MarkBusy(int32_t block) {
  Record& record = records_.at(block);
  CHECK(record.idle_order != 0, "block {} is not idle", block);
  by_expiry_.erase({{record.expires_ns, record.idle_order}, block});
  by_priority_.erase({{record.priority, record.idle_order}, block});
  record.idle_order = 0;
}

std::optional<int32_t> RetainedBlocks::TakeExpired(int64_t now_ns) {
  if (by_expiry_.empty() || by_expiry_.begin()->first.first > now_ns) return std::nullopt;
  const int32_t block = by_expiry_.begin()->second;
  Forget(block);
  return block;
}

std::optional<int32_t> RetainedBlocks::First() const {
  if (by_priority_.empty()) return std::nullopt;
  return by_priority_.begin()->second;
}

}  // namespace polysil

#include "kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "polysil/base/check.h"

namespace polysil {

size_t PrefixCache::NodeHash::operator()(int32_t slot) const {
  return (*this)((*nodes)[static_cast<size_t>(slot)].hash);
}
size_t PrefixCache::NodeHash::operator()(const BlockHash& hash) const {
  uint64_t word = 0;
  std::memcpy(&word, hash.bytes.data(), sizeof(word));
  return static_cast<size_t>(word);
}
bool PrefixCache::NodeEqual::operator()(int32_t left, int32_t right) const {
  return (*this)(left, (*nodes)[static_cast<size_t>(right)].hash);
}
bool PrefixCache::NodeEqual::operator()(int32_t slot, const BlockHash& hash) const {
  return (*nodes)[static_cast<size_t>(slot)].hash == hash;
}
bool PrefixCache::NodeEqual::operator()(const BlockHash& hash, int32_t slot) const {
  return (*this)(slot, hash);
}

PrefixCache::PrefixCache(int32_t blocks, int32_t host_blocks, int32_t tokens_per_block)
    : blocks_(blocks),
      tokens_per_block_(tokens_per_block),
      nodes_(static_cast<size_t>(blocks) + static_cast<size_t>(host_blocks)),
      tokens_(nodes_.size() * static_cast<size_t>(tokens_per_block)),
      index_(nodes_.size(), NodeHash{&nodes_}, NodeEqual{&nodes_}),
      retained_(blocks) {}

std::optional<PrefixCache::Hit> PrefixCache::Find(const PrefixBlock& wanted) const {
  const auto found = index_.find(wanted.hash);
  if (found == index_.end() || !IsSame(*found, wanted)) return std::nullopt;
  return Hit{PlaceOf(*found), at(*found).link};
}

PrefixCache::Published PrefixCache::Publish(BlockId block, const PrefixBlock& content) {
  CHECK(!Holds(OnDevice(block)), "block {} is known already", block.value);
  const int32_t slot = SlotOf(OnDevice(block));
  const auto found = index_.find(content.hash);
  if (found == index_.end()) {
    Add(slot, content, ++links_given_);
    return Published{.link = at(slot).link, .holder = block, .added = true, .news = true};
  }
  const KvPlace known = PlaceOf(*found);
  PrefixLink link = at(*found).link;
  const bool same = IsSame(*found, content);
  if (same) {
    if (known.tier == KvTier::kDevice && !IsIdle(known)) {
      return Published{.link = link, .holder = known.block};
    }
    // Same content, so the link and all that hangs on it stay good.
  } else {
    // Other content under the same name: a collision, or a chain whose parent was evicted. The
    // newer one is worth more; what hangs on the older link is no longer found.
    link = ++links_given_;
  }
  Forget(known);
  Add(slot, content, link);
  return Published{.link = link,
                   .holder = block,
                   .added = true,
                   .news = !same || known.tier == KvTier::kHost,
                   .dropped = known};
}

void PrefixCache::MarkIdle(KvPlace place, int64_t now_ns) {
  const int32_t slot = SlotOf(place);
  CHECK(Holds(place) && at(slot).idle_previous == kBusy, "block {} cannot become idle",
        place.block.value);
  if (retained_.Holds(slot)) {
    retained_.MarkIdle(slot, now_ns);
    at(slot).idle_previous = kRetained;
  } else {
    Append(slot);
  }
}

void PrefixCache::MarkBusy(KvPlace place) {
  const int32_t slot = SlotOf(place);
  CHECK(IsIdle(place), "block {} is not idle", place.block.value);
  if (at(slot).idle_previous == kRetained) {
    retained_.MarkBusy(slot);
    at(slot).idle_previous = kBusy;
  } else {
    Unlist(slot);
  }
}

bool PrefixCache::TryRetain(BlockId block, const RetentionWish& wish) {
  CHECK(Holds(OnDevice(block)) && !IsIdle(OnDevice(block)), "block {} is not a known one in use",
        block.value);
  return retained_.TryRetain(block.value, wish);
}

void PrefixCache::EndWishes(int64_t now_ns) {
  while (const std::optional<int32_t> slot = retained_.TakeExpired(now_ns)) Append(*slot);
}

std::optional<BlockId> PrefixCache::NextToGo(KvTier tier) const {
  const IdleList& idle = idle_[static_cast<size_t>(tier)];
  if (idle.first != kNone) return PlaceOf(idle.first).block;
  if (tier == KvTier::kHost) return std::nullopt;
  const std::optional<int32_t> slot = retained_.First();
  return slot ? std::optional(BlockId{*slot}) : std::nullopt;
}

void PrefixCache::Forget(KvPlace place) {
  const int32_t slot = SlotOf(place);
  CHECK(Holds(place), "block {} is not known", place.block.value);
  if (IsIdle(place)) MarkBusy(place);
  retained_.Forget(slot);
  if (at(slot).idle_previous != kArriving) {
    CHECK(index_.erase(slot) == 1, "block {} is not indexed", place.block.value);
  }
  root_salts_.erase(slot);
  at(slot).link = kRootLink;
  at(slot).idle_previous = kBusy;
  --blocks_held_[static_cast<size_t>(place.tier)];
}

void PrefixCache::Demote(BlockId block, BlockId host_block) {
  const int32_t from = SlotOf(OnDevice(block));
  const int32_t to = SlotOf(OnHost(host_block));
  CHECK(at(to).link == kRootLink, "host block {} is in use", host_block.value);
  at(to).hash = at(from).hash;
  at(to).link = at(from).link;
  at(to).parent = at(from).parent;
  at(to).idle_previous = kArriving;
  std::ranges::copy(TokensAt(from), TokensAt(to).begin());
  if (const auto salt = root_salts_.find(from); salt != root_salts_.end()) {
    std::string text = salt->second;
    root_salts_.emplace(to, std::move(text));
  }
  ++blocks_held_[static_cast<size_t>(KvTier::kHost)];
  Forget(OnDevice(block));
}

bool PrefixCache::Arrive(BlockId host_block) {
  const int32_t slot = SlotOf(OnHost(host_block));
  CHECK(at(slot).idle_previous == kArriving, "host block {} is not on its way", host_block.value);
  if (!index_.insert(slot).second) {
    Forget(OnHost(host_block));
    return false;
  }
  at(slot).idle_previous = kBusy;
  Append(slot);
  return true;
}

int32_t PrefixCache::blocks_idle(KvTier tier) const {
  const int32_t retained = tier == KvTier::kDevice ? retained_.blocks_idle() : 0;
  return idle_[static_cast<size_t>(tier)].count + retained;
}

Status PrefixCache::CheckIntegrity() const {
  std::array<int32_t, 2> held{};
  std::array<int32_t, 2> idle{};
  size_t indexed = 0;
  for (int32_t slot = 0; slot < static_cast<int32_t>(nodes_.size()); ++slot) {
    RETURN_IF_ERROR(CheckNode(slot));
    const KvPlace place = PlaceOf(slot);
    if (!Holds(place)) continue;
    ++held[static_cast<size_t>(place.tier)];
    idle[static_cast<size_t>(place.tier)] += IsIdle(place) ? 1 : 0;
    indexed += at(slot).idle_previous == kArriving ? 0 : 1;
  }
  if (indexed != index_.size()) return Internal("{} blocks, {} indexed", indexed, index_.size());
  for (const KvTier tier : {KvTier::kDevice, KvTier::kHost}) {
    const size_t t = static_cast<size_t>(tier);
    int32_t listed = 0;
    for (int32_t slot = idle_[t].first; slot != kNone; slot = at(slot).idle_next) {
      if (at(slot).idle_previous < kNone) return Internal("slot {} is listed, not idle", slot);
      if (++listed > idle_[t].count) return Internal("the idle list exceeds {}", idle_[t].count);
    }
    if (held[t] != blocks_held_[t] || idle[t] != blocks_idle(tier) || listed != idle_[t].count) {
      return Internal("{} blocks held, {} counted; {} idle, {} counted, {} listed of {}", held[t],
                      blocks_held_[t], idle[t], blocks_idle(tier), listed, idle_[t].count);
    }
  }
  return OkStatus();
}

Status PrefixCache::CheckNode(int32_t slot) const {
  const Node& each = at(slot);
  if (each.link == kRootLink) {
    if (each.idle_previous == kBusy) return OkStatus();
    return Internal("slot {} is idle and not held", slot);
  }
  const auto found = index_.find(each.hash);
  const bool leads_here = found != index_.end() && *found == slot;
  if (leads_here == (each.idle_previous != kArriving)) return OkStatus();
  return Internal("the index {} to slot {}", leads_here ? "leads" : "does not lead", slot);
}

std::span<TokenId> PrefixCache::TokensAt(int32_t slot) {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  return std::span(tokens_).subspan(static_cast<size_t>(slot) * size, size);
}

std::span<const TokenId> PrefixCache::TokensOf(KvPlace place) const {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  return std::span(tokens_).subspan(static_cast<size_t>(SlotOf(place)) * size, size);
}

bool PrefixCache::IsSame(int32_t slot, const PrefixBlock& content) const {
  if (at(slot).parent != content.parent) return false;
  if (!std::ranges::equal(TokensOf(PlaceOf(slot)), content.tokens)) return false;
  if (content.parent != kRootLink) return true;
  const auto salt = root_salts_.find(slot);
  return salt == root_salts_.end() ? content.salt.empty() : salt->second == content.salt;
}

void PrefixCache::Add(int32_t slot, const PrefixBlock& content, PrefixLink link) {
  CHECK(static_cast<int32_t>(content.tokens.size()) == tokens_per_block_, "block of {} tokens",
        content.tokens.size());
  Node& added = at(slot);
  added.hash = content.hash;
  added.link = link;
  added.parent = content.parent;
  std::ranges::copy(content.tokens, TokensAt(slot).begin());
  if (content.parent == kRootLink && !content.salt.empty()) {
    root_salts_.emplace(slot, content.salt);
  }
  ++blocks_held_[slot < blocks_ ? 0 : 1];
  CHECK(index_.insert(slot).second, "two blocks under the name of slot {}", slot);
}

void PrefixCache::Append(int32_t slot) {
  IdleList& idle = list(slot);
  at(slot).idle_previous = idle.last;
  at(slot).idle_next = kNone;
  (idle.last == kNone ? idle.first : at(idle.last).idle_next) = slot;
  idle.last = slot;
  ++idle.count;
}

void PrefixCache::Unlist(int32_t slot) {
  IdleList& idle = list(slot);
  const int32_t previous = at(slot).idle_previous;
  const int32_t next = at(slot).idle_next;
  (previous == kNone ? idle.first : at(previous).idle_next) = next;
  (next == kNone ? idle.last : at(next).idle_previous) = previous;
  at(slot).idle_previous = kBusy;
  --idle.count;
}

}  // namespace polysil

#include "kv/prefix_cache.h"

#include <algorithm>

#include "polysil/base/check.h"

namespace polysil {

size_t PrefixCache::NodeHash::operator()(int32_t block) const {
  return (*this)((*nodes)[static_cast<size_t>(block)].hash);
}
size_t PrefixCache::NodeHash::operator()(const BlockHash& hash) const {
  uint64_t word = 0;
  std::memcpy(&word, hash.bytes.data(), sizeof(word));
  return static_cast<size_t>(word);
}
bool PrefixCache::NodeEqual::operator()(int32_t left, int32_t right) const {
  return (*this)(left, (*nodes)[static_cast<size_t>(right)].hash);
}
bool PrefixCache::NodeEqual::operator()(int32_t block, const BlockHash& hash) const {
  return (*nodes)[static_cast<size_t>(block)].hash == hash;
}
bool PrefixCache::NodeEqual::operator()(const BlockHash& hash, int32_t block) const {
  return (*this)(block, hash);
}

PrefixCache::PrefixCache(int32_t blocks, int32_t tokens_per_block)
    : tokens_per_block_(tokens_per_block),
      nodes_(static_cast<size_t>(blocks)),
      tokens_(static_cast<size_t>(blocks) * static_cast<size_t>(tokens_per_block)),
      index_(static_cast<size_t>(blocks), NodeHash{&nodes_}, NodeEqual{&nodes_}) {}

std::optional<PrefixCache::Hit> PrefixCache::Find(const PrefixBlock& wanted) const {
  const auto found = index_.find(wanted.hash);
  if (found == index_.end()) return std::nullopt;
  const BlockId block{*found};
  if (!IsSame(block, wanted)) return std::nullopt;
  return Hit{block, node(block).link};
}

PrefixCache::Published PrefixCache::Publish(BlockId block, const PrefixBlock& content) {
  CHECK(!Holds(block), "block {} is known already", block.value);
  const auto found = index_.find(content.hash);
  if (found == index_.end()) {
    Add(block, content, ++links_given_);
    return Published{.link = node(block).link, .added = true};
  }
  const BlockId known{*found};
  PrefixLink link = node(known).link;
  if (IsSame(known, content)) {
    if (!IsIdle(known)) return Published{.link = link};
    // Same content, so the link and all that hangs on it stay good.
  } else {
    // Other content under the same name: a collision, or a chain whose parent was evicted. The
    // newer one is worth more; what hangs on the older link is no longer found.
    link = ++links_given_;
  }
  Forget(known);
  Add(block, content, link);
  return Published{.link = link, .added = true, .dropped = known};
}

void PrefixCache::MarkIdle(BlockId block) {
  Node& added = node(block);
  CHECK(Holds(block) && !added.idle, "block {} cannot become idle", block.value);
  added.idle = true;
  added.idle_previous = idle_last_;
  added.idle_next = kNone;
  if (idle_last_ == kNone) {
    idle_first_ = block.value;
  } else {
    node(BlockId{idle_last_}).idle_next = block.value;
  }
  idle_last_ = block.value;
  ++blocks_idle_;
}

void PrefixCache::MarkBusy(BlockId block) {
  Node& removed = node(block);
  CHECK(removed.idle, "block {} is not idle", block.value);
  if (removed.idle_previous == kNone) {
    idle_first_ = removed.idle_next;
  } else {
    node(BlockId{removed.idle_previous}).idle_next = removed.idle_next;
  }
  if (removed.idle_next == kNone) {
    idle_last_ = removed.idle_previous;
  } else {
    node(BlockId{removed.idle_next}).idle_previous = removed.idle_previous;
  }
  removed.idle = false;
  --blocks_idle_;
}

std::optional<BlockId> PrefixCache::EvictOldest() {
  if (idle_first_ == kNone) return std::nullopt;
  const BlockId block{idle_first_};
  Forget(block);
  return block;
}

Status PrefixCache::CheckIntegrity() const {
  int32_t held = 0;
  int32_t idle = 0;
  for (int32_t block = 0; block < static_cast<int32_t>(nodes_.size()); ++block) {
    const Node& each = node(BlockId{block});
    if (each.idle && each.link == kRootLink) return Internal("idle block {} is not held", block);
    if (each.link == kRootLink) continue;
    ++held;
    idle += each.idle ? 1 : 0;
    const auto found = index_.find(each.hash);
    if (found == index_.end() || *found != block) {
      return Internal("the index does not lead to block {}", block);
    }
  }
  int32_t listed = 0;
  for (int32_t block = idle_first_; block != kNone; block = node(BlockId{block}).idle_next) {
    if (!node(BlockId{block}).idle) return Internal("block {} is listed idle and is not", block);
    if (++listed > blocks_idle_) return Internal("the idle list is longer than {}", blocks_idle_);
  }
  if (held != blocks_held() || idle != blocks_idle_ || listed != idle) {
    return Internal("{} blocks held, {} indexed; {} idle, {} counted, {} listed", held,
                    blocks_held(), idle, blocks_idle_, listed);
  }
  return OkStatus();
}

std::span<TokenId> PrefixCache::TokensOf(BlockId block) {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  return std::span(tokens_).subspan(static_cast<size_t>(block.value) * size, size);
}

std::span<const TokenId> PrefixCache::TokensOf(BlockId block) const {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  return std::span(tokens_).subspan(static_cast<size_t>(block.value) * size, size);
}

bool PrefixCache::IsSame(BlockId block, const PrefixBlock& content) const {
  if (node(block).parent != content.parent) return false;
  if (!std::ranges::equal(TokensOf(block), content.tokens)) return false;
  if (content.parent != kRootLink) return true;
  const auto salt = root_salts_.find(block.value);
  return salt == root_salts_.end() ? content.salt.empty() : salt->second == content.salt;
}

void PrefixCache::Add(BlockId block, const PrefixBlock& content, PrefixLink link) {
  CHECK(static_cast<int32_t>(content.tokens.size()) == tokens_per_block_, "block of {} tokens",
        content.tokens.size());
  Node& added = node(block);
  added.hash = content.hash;
  added.link = link;
  added.parent = content.parent;
  std::ranges::copy(content.tokens, TokensOf(block).begin());
  if (content.parent == kRootLink && !content.salt.empty()) {
    root_salts_.emplace(block.value, content.salt);
  }
  CHECK(index_.insert(block.value).second, "two blocks under the name of block {}", block.value);
}

void PrefixCache::Forget(BlockId block) {
  if (IsIdle(block)) MarkBusy(block);
  CHECK(index_.erase(block.value) == 1, "block {} is not indexed", block.value);
  root_salts_.erase(block.value);
  node(block).link = kRootLink;
}

}  // namespace polysil

// PrefixCache: which blocks hold a known prefix, so that a later sequence can take them instead of
// computing them. It knows blocks of both tiers and holds one reference of their pool for each
// (KvManager counts it). Owned by KvManager, on the engine thread. Find and Publish are O(1)
// besides comparing one block.
//
// Blocks form chains. A link names one block's whole content from the root; block n is found only
// through the link of block n - 1, and only if its token ids are equal, so neither a collision of
// hashes nor a chain with a hole can give a wrong hit:
//
//   root "salt" -> link 7 [1 2 3 4] -> link 9 [5 6 7 8]
//                                   -> link 12 [5 6 9 9]
//
// Content lies in one block at a time and keeps its link when it moves: to the host tier when its
// block is evicted (Demote, and findable from Arrive on), back when a block of the device that
// holds the same is published.
//
// A block that only the cache holds is idle. Idle blocks go in the order in which they became idle;
// a table lets go of its tail first, so chains are eaten from the tail. Blocks of the device with a
// wish (RetainedBlocks) go after all others.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "kv/block_hash.h"
#include "kv/retained_blocks.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/step.h"

namespace polysil {

// The content of a chain up to one block. Never given twice; 0 is the root.
using PrefixLink = uint64_t;
inline constexpr PrefixLink kRootLink = 0;

inline KvPlace OnDevice(BlockId block) {
  return {KvTier::kDevice, block};
}
inline KvPlace OnHost(BlockId block) {
  return {KvTier::kHost, block};
}

// One full block of a chain, as it is looked for or made known.
struct PrefixBlock {
  BlockHash hash;
  PrefixLink parent = kRootLink;
  std::string_view salt;            // of the chain; compared at the root only
  std::span<const TokenId> tokens;  // [tokens_per_block]
};

class PrefixCache final {
 public:
  struct Hit {
    KvPlace place;
    PrefixLink link = kRootLink;
  };
  struct Published {
    PrefixLink link = kRootLink;     // of the content
    BlockId holder;                  // the block of the device that holds it now
    bool added = false;              // `block` does: one reference of the cache more
    bool news = false;               // it was not findable on the device before
    std::optional<KvPlace> dropped;  // the cache no longer holds this one: one reference less
  };

  PrefixCache(int32_t blocks, int32_t host_blocks, int32_t tokens_per_block);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  std::optional<Hit> Find(const PrefixBlock& wanted) const;
  // Makes the content findable in `block`, which must be in use and not known yet. Content that is
  // known stays where it is, unless it lies idle or in the host tier: then `block` takes its place.
  Published Publish(BlockId block, const PrefixBlock& content);

  // Findable, or on its way to be.
  bool Holds(KvPlace place) const { return node(place).link != kRootLink; }
  bool IsIdle(KvPlace place) const { return node(place).idle_previous >= kRetained; }
  // The last other holder let go, or a first one came. `now_ns`: when wishes begin to run out.
  void MarkIdle(KvPlace place, int64_t now_ns);
  void MarkBusy(KvPlace place);
  // See RetainedBlocks. A known block that is in use.
  bool TryRetain(BlockId block, const RetentionWish& wish);

  // Wishes that are over by now end: their blocks are like others that have become idle now.
  void EndWishes(int64_t now_ns);
  // The idle block that is to go next. Absent: none is idle.
  std::optional<BlockId> NextToGo(KvTier tier) const;
  // What it holds is no longer findable.
  void Forget(KvPlace place);
  // What a block of the device holds is no longer findable there, and is on its way to a block of
  // the host tier that holds nothing.
  void Demote(BlockId block, BlockId host_block);
  // It has come: findable, idle. False: the content became known elsewhere; nothing is held.
  bool Arrive(BlockId host_block);

  BlockHash NameOf(KvPlace place) const { return node(place).hash; }
  std::span<const TokenId> TokensOf(KvPlace place) const;
  int32_t blocks_idle(KvTier tier) const;
  int32_t blocks_held(KvTier tier) const { return blocks_held_[static_cast<size_t>(tier)]; }

  // INTERNAL where index, nodes and the idle lists disagree. O(blocks).
  Status CheckIntegrity() const;

 private:
  // Values of Node::idle_previous besides blocks.
  static constexpr int32_t kNone = -1;      // idle, the first of its list
  static constexpr int32_t kRetained = -2;  // idle, in retained_
  static constexpr int32_t kBusy = -3;
  static constexpr int32_t kArriving = -4;  // held, not findable

  // Blocks of the device, then those of the host tier, by slot.
  struct Node {
    BlockHash hash;
    PrefixLink link = kRootLink;  // kRootLink: the cache does not hold this block
    PrefixLink parent = kRootLink;
    int32_t idle_previous = kBusy;
    int32_t idle_next = kNone;
  };
  static_assert(sizeof(Node) == 40);
  // Of slots, idle longest first.
  struct IdleList {
    int32_t first = kNone;
    int32_t last = kNone;
    int32_t count = 0;
  };
  // The index holds slots; hash and equality are those of the nodes.
  struct NodeHash {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    size_t operator()(int32_t slot) const;
    size_t operator()(const BlockHash& hash) const;
  };
  struct NodeEqual {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    bool operator()(int32_t left, int32_t right) const;
    bool operator()(int32_t slot, const BlockHash& hash) const;
    bool operator()(const BlockHash& hash, int32_t slot) const;
  };

  int32_t SlotOf(KvPlace place) const {
    return place.block.value + (place.tier == KvTier::kHost ? blocks_ : 0);
  }
  KvPlace PlaceOf(int32_t slot) const {
    return slot < blocks_ ? OnDevice(BlockId{slot}) : OnHost(BlockId{slot - blocks_});
  }
  const Node& node(KvPlace place) const { return at(SlotOf(place)); }
  const Node& at(int32_t slot) const { return nodes_[static_cast<size_t>(slot)]; }
  Node& at(int32_t slot) { return nodes_[static_cast<size_t>(slot)]; }
  std::span<TokenId> TokensAt(int32_t slot);
  IdleList& list(int32_t slot) { return idle_[slot < blocks_ ? 0 : 1]; }
  bool IsSame(int32_t slot, const PrefixBlock& content) const;
  void Add(int32_t slot, const PrefixBlock& content, PrefixLink link);
  void Append(int32_t slot);
  void Unlist(int32_t slot);
  Status CheckNode(int32_t slot) const;

  const int32_t blocks_;
  const int32_t tokens_per_block_;
  std::vector<Node> nodes_;      // [slots]
  std::vector<TokenId> tokens_;  // [slots, tokens_per_block]
  absl::flat_hash_set<int32_t, NodeHash, NodeEqual> index_;
  absl::flat_hash_map<int32_t, std::string> root_salts_;  // of first blocks with a salt
  RetainedBlocks retained_;
  PrefixLink links_given_ = 0;
  std::array<IdleList, 2> idle_;          // by tier
  std::array<int32_t, 2> blocks_held_{};  // by tier
};

}  // namespace polysil

// PrefixCache: which blocks hold a known prefix, so that a later sequence can take them instead of
// computing them. It holds one reference of the pool for each block it knows (KvManager counts it).
// Owned by KvManager, on the engine thread. Find and Publish are O(1) besides comparing one block.
//
// Blocks form chains. A link names one block's whole content from the root; block n is found only
// through the link of block n - 1, and only if its token ids are equal, so neither a collision of
// hashes nor a chain with a hole can give a wrong hit:
//
//   root "salt" -> link 7 [1 2 3 4] -> link 9 [5 6 7 8]
//                                   -> link 12 [5 6 9 9]
//
// A block that only the cache holds is idle. Idle blocks are evicted in the order in which they
// became idle; a table lets go of its tail first, so chains are eaten from the tail.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "kv/block_hash.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"

namespace polysil {

// The content of a chain up to one block. Never given twice; 0 is the root.
using PrefixLink = uint64_t;
inline constexpr PrefixLink kRootLink = 0;

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
    BlockId block;
    PrefixLink link = kRootLink;
  };
  struct Published {
    PrefixLink link = kRootLink;     // of the content, whichever block holds it
    bool added = false;              // the cache now holds the block: one reference more
    std::optional<BlockId> dropped;  // the cache no longer holds this one: one reference less
  };

  PrefixCache(int32_t blocks, int32_t tokens_per_block);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  std::optional<Hit> Find(const PrefixBlock& wanted) const;
  // Makes the content findable in `block`, which must be in use and not known yet. Content that is
  // known stays where it is, unless it lies idle: then the block in use takes its place.
  Published Publish(BlockId block, const PrefixBlock& content);

  bool Holds(BlockId block) const { return node(block).link != kRootLink; }
  bool IsIdle(BlockId block) const { return node(block).idle; }
  // The last other holder let go, or a first one came.
  void MarkIdle(BlockId block);
  void MarkBusy(BlockId block);
  // Forgets the block that has been idle longest. Absent: none is idle.
  std::optional<BlockId> EvictOldest();

  int32_t blocks_idle() const { return blocks_idle_; }
  int32_t blocks_held() const { return static_cast<int32_t>(index_.size()); }

  // INTERNAL where index, nodes and the idle list disagree. O(blocks).
  Status CheckIntegrity() const;

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    BlockHash hash;
    PrefixLink link = kRootLink;  // kRootLink: the cache does not hold this block
    PrefixLink parent = kRootLink;
    int32_t idle_previous = kNone;
    int32_t idle_next = kNone;
    bool idle = false;
  };
  // The index holds block numbers; hash and equality are those of the nodes.
  struct NodeHash {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    size_t operator()(int32_t block) const;
    size_t operator()(const BlockHash& hash) const;
  };
  struct NodeEqual {
    using is_transparent = void;
    const std::vector<Node>* nodes;
    bool operator()(int32_t left, int32_t right) const;
    bool operator()(int32_t block, const BlockHash& hash) const;
    bool operator()(const BlockHash& hash, int32_t block) const;
  };

  const Node& node(BlockId block) const { return nodes_[static_cast<size_t>(block.value)]; }
  Node& node(BlockId block) { return nodes_[static_cast<size_t>(block.value)]; }
  std::span<TokenId> TokensOf(BlockId block);
  std::span<const TokenId> TokensOf(BlockId block) const;
  bool IsSame(BlockId block, const PrefixBlock& content) const;
  void Add(BlockId block, const PrefixBlock& content, PrefixLink link);
  void Forget(BlockId block);

  const int32_t tokens_per_block_;
  std::vector<Node> nodes_;      // [blocks]
  std::vector<TokenId> tokens_;  // [blocks, tokens_per_block]
  absl::flat_hash_set<int32_t, NodeHash, NodeEqual> index_;
  absl::flat_hash_map<int32_t, std::string> root_salts_;  // of first blocks with a salt
  PrefixLink links_given_ = 0;
  int32_t idle_first_ = kNone;  // idle longest
  int32_t idle_last_ = kNone;
  int32_t blocks_idle_ = 0;
};

}  // namespace polysil

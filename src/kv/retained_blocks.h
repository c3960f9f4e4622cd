// RetainedBlocks: which blocks of the prefix cache somebody wishes to be kept, until when, and in
// which order they go if nothing else is left. A tenant (one salt) has a quarter of the pool for
// its wishes and all together half of it; a wish beyond that is not noted. Owned by PrefixCache, on
// the engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"

namespace polysil {

struct RetentionWish {
  int64_t keep_ns = 0;  // from the moment that the block becomes idle
  int32_t priority = 0;
  std::string_view tenant;
};

class RetainedBlocks final {
 public:
  explicit RetainedBlocks(int32_t blocks)
      : blocks_max_(blocks / 2), tenant_blocks_max_(std::max(1, blocks / 4)) {}

  // A block in use. Of two wishes for one block the longer time and the higher priority count.
  // False: the share is used up.
  bool TryRetain(int32_t block, const RetentionWish& wish);
  // The wish ends, if there is one.
  void Forget(int32_t block);
  bool Holds(int32_t block) const { return !records_.empty() && records_.contains(block); }

  void MarkIdle(int32_t block, int64_t now_ns);
  void MarkBusy(int32_t block);
  // An idle block whose time is over; its wish ends. Those idle longest come first.
  std::optional<int32_t> TakeExpired(int64_t now_ns);
  // Of the idle ones: lowest priority, then idle longest.
  std::optional<int32_t> First() const;

  int32_t blocks_held() const { return static_cast<int32_t>(records_.size()); }
  int32_t blocks_idle() const { return static_cast<int32_t>(by_expiry_.size()); }

 private:
  struct Record {
    int64_t keep_ns = 0;
    int32_t priority = 0;
    std::string tenant;
    int64_t expires_ns = 0;   // while idle
    uint64_t idle_order = 0;  // while idle; 0: in use
  };

  const int32_t blocks_max_;
  const int32_t tenant_blocks_max_;
  absl::flat_hash_map<int32_t, Record> records_;  // by block; never iterated
  absl::btree_map<std::string, int32_t> tenant_blocks_;
  // Of idle ones.
  absl::btree_set<std::pair<std::pair<int64_t, uint64_t>, int32_t>> by_expiry_;
  absl::btree_set<std::pair<std::pair<int32_t, uint64_t>, int32_t>> by_priority_;
  uint64_t orders_given_ = 0;
};

}  // namespace polysil

// BlockPool: which KV blocks of one pool are free, and how many hold each that is not. Ids and
// counts only; the bytes lie elsewhere. Whoever refers to a block holds a count (a sequence's
// table, the prefix cache); a block is free when all are gone. All calls are O(1). Owned by
// KvManager, on the engine thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"

namespace polysil {

class BlockPool final {
 public:
  // 0 blocks or more.
  explicit BlockPool(int32_t blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // The block that has been free longest, with one reference. Absent: none is free.
  std::optional<BlockId> TryAllocate();
  // One more holder of a block that has one.
  void AddReference(BlockId block);
  // One holder less; gives how many are left. At none the block is free.
  int32_t Release(BlockId block);

  int32_t references(BlockId block) const { return references_[Index(block)]; }
  int32_t blocks_total() const { return static_cast<int32_t>(references_.size()); }
  int32_t blocks_free() const { return blocks_free_; }

  // INTERNAL where the free list and the counts disagree. O(blocks).
  Status CheckIntegrity() const;

 private:
  static constexpr int32_t kNone = -1;

  size_t Index(BlockId block) const;
  void PushFree(BlockId block);

  std::vector<int32_t> references_;  // [blocks]
  std::vector<int32_t> free_next_;   // [blocks]: the block behind it in the free list
  int32_t free_first_ = kNone;       // free longest
  int32_t free_last_ = kNone;
  int32_t blocks_free_ = 0;
};

}  // namespace polysil

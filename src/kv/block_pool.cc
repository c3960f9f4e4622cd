#include "kv/block_pool.h"

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {

BlockPool::BlockPool(int32_t blocks) {
  CHECK(blocks >= 0, "a pool of {} blocks", blocks);
  references_.resize(static_cast<size_t>(blocks));
  free_next_.resize(static_cast<size_t>(blocks), kNone);
  for (int32_t block = 0; block < blocks; ++block) PushFree(BlockId{block});
}

std::optional<BlockId> BlockPool::TryAllocate() {
  if (free_first_ == kNone) return std::nullopt;
  const BlockId block{free_first_};
  const size_t index = Index(block);
  CHECK(references_[index] == 0, "free block {} has {} references", block.value,
        references_[index]);
  free_first_ = free_next_[index];
  if (free_first_ == kNone) free_last_ = kNone;
  free_next_[index] = kNone;
  references_[index] = 1;
  --blocks_free_;
  return block;
}

void BlockPool::AddReference(BlockId block) {
  int32_t& references = references_[Index(block)];
  CHECK(references > 0, "block {} is free", block.value);
  references += SEEDED_BUG(skip_a_reference) ? 0 : 1;
}

int32_t BlockPool::Release(BlockId block) {
  int32_t& references = references_[Index(block)];
  CHECK(references > 0, "block {} is free already", block.value);
  if (--references == 0 && !SEEDED_BUG(never_free_a_block)) PushFree(block);
  if (references == 1 && SEEDED_BUG(free_a_shared_block)) PushFree(block);
  return references;
}

Status BlockPool::CheckIntegrity() const {
  int32_t listed = 0;
  int32_t last = kNone;
  for (int32_t block = free_first_; block != kNone;
       block = free_next_[static_cast<size_t>(block)]) {
    if (references_[static_cast<size_t>(block)] != 0) {
      return Internal("block {} is in the free list with {} references", block,
                      references_[static_cast<size_t>(block)]);
    }
    if (++listed > blocks_total()) return Internal("the free list has a loop");
    last = block;
  }
  if (last != free_last_) return Internal("the free list ends at {}, not {}", last, free_last_);
  int32_t unreferenced = 0;
  for (const int32_t references : references_) unreferenced += references == 0 ? 1 : 0;
  if (listed != blocks_free_ || listed != unreferenced) {
    return Internal("{} blocks are listed free, {} counted free, {} have no reference", listed,
                    blocks_free_, unreferenced);
  }
  return OkStatus();
}

size_t BlockPool::Index(BlockId block) const {
  CHECK(block.value >= 0 && block.value < blocks_total(), "block {} of {}", block.value,
        blocks_total());
  return static_cast<size_t>(block.value);
}

void BlockPool::PushFree(BlockId block) {
  if (free_last_ == kNone) {
    free_first_ = block.value;
  } else {
    free_next_[static_cast<size_t>(free_last_)] = block.value;
  }
  free_last_ = block.value;
  ++blocks_free_;
}

}  // namespace polysil

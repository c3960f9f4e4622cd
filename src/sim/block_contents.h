// BlockContents: what the KV blocks of a simulated device and of its host tier hold, as
// fingerprints of token prefixes. It catches a block that two sequences write, one that is read
// before it was written or before the step that wrote it was known to be good, and one that changed
// under its reader. Owned by SimExecutor.
//
// The fingerprint of a prefix covers every token from position 0 on, so a block's content is named
// by the fingerprint of the prefix that ends with its last written position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/core/step.h"

namespace polysil {

// Of the prefix that is `before` followed by tokens at [position, position + tokens.size()).
uint64_t ExtendFingerprint(uint64_t before, int32_t position, std::span<const TokenId> tokens);

class BlockContents final {
 public:
  // A block as one sequence's table has it: what it takes the block to hold.
  struct Hold {
    BlockId block;
    uint32_t content = 0;  // counts the contents that the block has had
  };

  BlockContents(int32_t blocks, int32_t host_blocks)
      : blocks_(static_cast<size_t>(blocks)), host_blocks_(static_cast<size_t>(host_blocks)) {}

  bool IsBlock(KvPlace place) const {
    const size_t blocks = place.tier == KvTier::kHost ? host_blocks_.size() : blocks_.size();
    return place.block.value >= 0 && static_cast<size_t>(place.block.value) < blocks;
  }
  // The block as it is now, for a table that gets it.
  Hold Take(BlockId block) const { return {block, at(block).content}; }
  // True as long as the content is the one that was taken.
  bool IsUnchanged(const Hold& hold) const { return at(hold.block).content == hold.content; }

  // All return what is wrong; empty: nothing.

  // Step `step_id` reads the block; the last step whose result is known is `step_known`. The block
  // is full with `tokens` tokens and ends the prefix of that fingerprint, written by a step whose
  // result is known; copied there by such a step too, or by this one.
  struct Reading {
    int64_t step_id = 0;
    int64_t step_known = 0;
    int32_t tokens = 0;
    uint64_t fingerprint = 0;
  };
  std::string CheckFull(const Hold& hold, const Reading& reading) const;
  // By step `step_id`. What is copied is known to be right.
  std::string Copy(const KvCopy& copy, int64_t step_id, int64_t step_known);
  // `writer` appends tokens from `offset` on; the prefix was `before` and becomes `after`.
  struct Append {
    SequenceId writer;
    int64_t step_id = 0;
    int32_t offset = 0;
    int32_t tokens = 0;
    uint64_t before = 0;
    uint64_t after = 0;
  };
  std::string Write(Hold& hold, const Append& append);
  // A step that failed leaves there what nobody knows.
  void Spoil(KvPlace place);

 private:
  struct Block {
    uint64_t fingerprint = 0;
    SequenceId writer;
    int64_t step_id = 0;       // wrote last
    int64_t copy_step_id = 0;  // brought it here; 0: it was written here
    int32_t tokens = 0;
    uint32_t content = 0;
  };

  const Block& at(BlockId block) const { return blocks_[static_cast<size_t>(block.value)]; }
  Block& at(BlockId block) { return blocks_[static_cast<size_t>(block.value)]; }
  Block& at(KvPlace place) {
    return place.tier == KvTier::kHost ? host_blocks_[static_cast<size_t>(place.block.value)]
                                       : at(place.block);
  }

  std::vector<Block> blocks_;
  std::vector<Block> host_blocks_;
};

}  // namespace polysil

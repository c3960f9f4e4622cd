// BlockContents: what the KV blocks of a simulated device hold, as fingerprints of token prefixes.
// It catches a block that two sequences write, one that is read before it was written or before the
// step that wrote it was known to be good, and one that changed under its reader. Owned by
// SimExecutor.
//
// The fingerprint of a prefix covers every token from position 0 on, so a block's content is named
// by the fingerprint of the prefix that ends with its last written position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "polysil/base/ids.h"

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

  explicit BlockContents(int32_t blocks) : blocks_(static_cast<size_t>(blocks)) {}

  bool IsBlock(BlockId block) const {
    return block.value >= 0 && static_cast<size_t>(block.value) < blocks_.size();
  }
  // The block as it is now, for a table that gets it.
  Hold Take(BlockId block) const { return {block, at(block).content}; }
  // True as long as the content is the one that was taken.
  bool IsUnchanged(const Hold& hold) const { return at(hold.block).content == hold.content; }

  // All return what is wrong; empty: nothing.

  // The block is full with `tokens` tokens and ends the prefix of that fingerprint, written by a
  // step whose result is known, the last of which is `step_known`.
  std::string CheckFull(const Hold& hold, int32_t tokens, uint64_t fingerprint,
                        int64_t step_known) const;
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
  void Spoil(BlockId block);

 private:
  struct Block {
    uint64_t fingerprint = 0;
    SequenceId writer;
    int64_t step_id = 0;  // wrote last
    int32_t tokens = 0;
    uint32_t content = 0;
  };

  const Block& at(BlockId block) const { return blocks_[static_cast<size_t>(block.value)]; }
  Block& at(BlockId block) { return blocks_[static_cast<size_t>(block.value)]; }

  std::vector<Block> blocks_;
};

}  // namespace polysil

#include "sim/block_contents.h"

#include <fmt/format.h>

namespace polysil {

uint64_t ExtendFingerprint(uint64_t before, int32_t position, std::span<const TokenId> tokens) {
  // A sum of terms that depend on token and position: order counts, and no term waits for another.
  // Products of 32 bits to 64, which any processor does several at once.
  uint32_t first = static_cast<uint32_t>(position) * 0x9E3779B1U;
  uint32_t second = static_cast<uint32_t>(position) * 0x85EBCA77U + 0xC2B2AE3DU;
  for (const TokenId token : tokens) {
    const uint64_t left = static_cast<uint32_t>(token) + first;
    const uint64_t right = static_cast<uint32_t>(token) + second;
    before += left * right;
    first += 0x9E3779B1U;
    second += 0x85EBCA77U;
  }
  return before;
}

std::string BlockContents::CheckFull(const Hold& hold, int32_t tokens, uint64_t fingerprint,
                                     int64_t step_known) const {
  const Block& block = at(hold.block);
  if (block.tokens != tokens || block.fingerprint != fingerprint) {
    return fmt::format(
        "block {} holds {} tokens of sequence {}, which are not the prefix asked of it",
        hold.block.value, block.tokens, block.writer.value);
  }
  if (block.step_id > step_known) {
    return fmt::format("block {} was written by step {}, which is not known to have succeeded",
                       hold.block.value, block.step_id);
  }
  return {};
}

std::string BlockContents::Write(Hold& hold, const Append& append) {
  Block& block = at(hold.block);
  if (!IsUnchanged(hold)) {
    return fmt::format("block {} was given to sequence {} and written by sequence {}",
                       hold.block.value, append.writer.value, block.writer.value);
  }
  if (append.offset > 0 && (block.writer != append.writer || block.tokens != append.offset ||
                            block.fingerprint != append.before)) {
    return fmt::format(
        "sequence {} writes block {} from offset {}, where {} tokens of sequence {} lie",
        append.writer.value, hold.block.value, append.offset, block.tokens, block.writer.value);
  }
  if (append.offset == 0) hold.content = ++block.content;
  block.writer = append.writer;
  block.step_id = append.step_id;
  block.tokens = append.offset + append.tokens;
  block.fingerprint = append.after;
  return {};
}

void BlockContents::Spoil(BlockId block) {
  at(block) = Block{.content = at(block).content + 1};
}

}  // namespace polysil

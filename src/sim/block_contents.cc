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

std::string BlockContents::CheckFull(const Hold& hold, const Reading& reading) const {
  const Block& block = at(hold.block);
  if (block.tokens != reading.tokens || block.fingerprint != reading.fingerprint) {
    return fmt::format(
        "block {} holds {} tokens of sequence {}, which are not the prefix asked of it",
        hold.block.value, block.tokens, block.writer.value);
  }
  if (block.step_id > reading.step_known) {
    return fmt::format("block {} was written by step {}, which is not known to have succeeded",
                       hold.block.value, block.step_id);
  }
  if (block.copy_step_id > reading.step_known && block.copy_step_id != reading.step_id) {
    return fmt::format("block {} was copied by step {}, which is not known to have succeeded",
                       hold.block.value, block.copy_step_id);
  }
  return {};
}

std::string BlockContents::Copy(const KvCopy& copy, int64_t step_id, int64_t step_known) {
  if (!IsBlock(copy.from) || !IsBlock(copy.to)) {
    return fmt::format("block {} is copied to {}, which are none", copy.from.block.value,
                       copy.to.block.value);
  }
  const Block& from = at(copy.from);
  if (from.tokens == 0 || from.step_id > step_known || from.copy_step_id > step_known) {
    return fmt::format("block {} is copied, and what it holds is not known", copy.from.block.value);
  }
  Block& to = at(copy.to);
  const uint32_t content = to.content + 1;
  to = from;
  to.content = content;
  to.copy_step_id = step_id;
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
  block.copy_step_id = 0;
  block.tokens = append.offset + append.tokens;
  block.fingerprint = append.after;
  return {};
}

void BlockContents::Spoil(KvPlace place) {
  at(place) = Block{.content = at(place).content + 1};
}

}  // namespace polysil

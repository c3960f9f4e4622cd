// BlockTable: the blocks of one sequence in the order of its positions, and how far their content
// is known by name. Append-only while the sequence runs. A value kept by KvManager.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/block_hash.h"
#include "kv/prefix_cache.h"
#include "polysil/base/ids.h"
#include "polysil/core/request.h"

namespace polysil {

struct BlockTableOptions {
  std::string_view salt;
  bool reads_cache = true;  // may start with known blocks; its own are offered in any case
  bool counted = true;      // its prompt counts in the hit statistics
  int32_t priority = 0;     // waits for no prefix that a table of lower priority computes
  const std::vector<RetentionHint>* retention = nullptr;  // copied; null: none
};

struct BlockTable {
  std::vector<BlockId> blocks;    // position p lies in blocks[p / tokens_per_block]
  std::vector<BlockHash> hashes;  // names of the first full blocks, as far as they were needed
  BlockHash root;                 // set with the first hash
  std::string salt;
  std::vector<RetentionHint> retention;
  bool reads_cache = true;
  bool counts = false;  // its prompt is still to be counted in the hit statistics
  int32_t priority = 0;
  // blocks[0 .. blocks_known) are full and were taken from the prefix cache or offered to it. Only
  // these may be shared; `link` is the content of the last of them.
  int32_t blocks_known = 0;
  PrefixLink link = kRootLink;
  // Blocks of the host tier whose content is to be copied into blocks[blocks_known ..) before the
  // first row; each is held. Empty once the copies are on their way.
  std::vector<BlockId> host_blocks;
  // blocks[blocks_known .. blocks_planned) are being computed, the first of them announced to
  // others where `announced` is set.
  int32_t blocks_planned = 0;
  int32_t block_announced = 0;
  bool announced = false;
  // It waits until that table, in that life, knows so many blocks.
  std::optional<BlockTableId> leader;
  uint64_t leader_life = 0;
  int32_t leader_blocks = 0;
  uint64_t life = 0;  // rises when the table gives up its blocks
  int32_t steps_in_flight = 0;
  bool open = false;  // a sequence holds the table
};

}  // namespace polysil

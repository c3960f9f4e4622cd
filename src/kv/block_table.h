// BlockTable: the blocks of one sequence in the order of its positions, and how far their content
// is known by name. Append-only while the sequence runs. A value kept by KvManager.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/block_hash.h"
#include "kv/prefix_cache.h"
#include "polysil/base/ids.h"

namespace polysil {

struct BlockTable {
  std::vector<BlockId> blocks;    // position p lies in blocks[p / tokens_per_block]
  std::vector<BlockHash> hashes;  // names of the first full blocks, as far as they were needed
  BlockHash root;                 // set with the first hash
  std::string salt;
  bool reads_cache = true;
  // blocks[0 .. blocks_known) are full and were taken from the prefix cache or offered to it. Only
  // these may be shared; `link` is the content of the last of them.
  int32_t blocks_known = 0;
  PrefixLink link = kRootLink;
  int32_t steps_in_flight = 0;
  bool counted = false;  // its prompt is in the hit statistics
  bool open = false;     // a sequence holds the table
};

}  // namespace polysil

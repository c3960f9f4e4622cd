// Where the keys and values of a block lie in a pool; see KvLayout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polysil/device/ops.h"

namespace polysil {

// K or V of one layer of one block.
inline std::byte* KvPlane(const KvPool& pool, BlockId block, int32_t layer, bool value) {
  return pool.base + block.value * pool.layout.block_bytes() +
         (int64_t{layer} * 2 + (value ? 1 : 0)) * pool.layout.plane_bytes();
}

}  // namespace polysil

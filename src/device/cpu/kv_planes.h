// How and where keys and values lie in a pool's blocks; see KvLayout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "polysil/device/ops.h"

namespace polysil {

// dtype is one of those that KvLayout names.
inline kernels::KvType KvTypeOf(DType dtype) {
  return dtype == DType::kI8    ? kernels::KvType::kInt8
         : dtype == DType::kF16 ? kernels::KvType::kHalf
                                : kernels::KvType::kFloat;
}

// K or V of one layer of one block.
inline std::byte* KvPlane(const KvPool& pool, BlockId block, int32_t layer, bool value) {
  return pool.base + block.value * pool.layout.block_bytes() +
         (int64_t{layer} * 2 + (value ? 1 : 0)) * pool.layout.plane_bytes();
}

}  // namespace polysil

// KvLayout: how one replica lays out the KV of one block. A value, free of devices.
// Block-major: block -> layer -> K then V -> head. Of a head, V is [token, head_size]; K is
// [token / 8, head_size, 8], so that a load brings one element of eight keys, and scores need no
// sum across a register. Of 8-bit integers two neighbours lie together, so that one instruction
// multiplies and adds both: V is [token / 2, head_size, 2], K is [token / 8, head_size / 2, 8, 2];
// and behind every eight tokens of a head are their eight scales, as floats.
#pragma once

#include <cstdint>

#include "polysil/core/dtype.h"

namespace polysil {

struct KvLayout {
  static constexpr int32_t kKeyGroup = 8;  // tokens whose keys lie together

  int32_t layers = 0;
  int32_t kv_heads = 0;
  int32_t head_size = 0;
  int32_t tokens_per_block = 16;  // a multiple of kKeyGroup
  DType dtype = DType::kF16;      // kF16, kF32 or kI8

  int64_t element_bytes() const { return Info(dtype).bytes_per_block; }
  // K (or V) of one token of one head, its scale included.
  int64_t token_bytes() const {
    const int64_t scale_bytes = dtype == DType::kI8 ? sizeof(float) : 0;
    return head_size * element_bytes() + scale_bytes;
  }
  int64_t head_bytes() const { return tokens_per_block * token_bytes(); }
  // K (or V) of one layer of one block.
  int64_t plane_bytes() const { return kv_heads * head_bytes(); }
  int64_t block_bytes() const { return int64_t{layers} * 2 * plane_bytes(); }
};

}  // namespace polysil

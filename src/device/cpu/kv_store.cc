#include "device/cpu/kv_store.h"

#include <algorithm>
#include <cstring>

#include "device/cpu/kv_planes.h"

namespace polysil {
namespace {

using kernels::kKeyGroup;

constexpr int32_t kStoreRowsPerTask = 16;

// Spreads elements over the groups of kKeyGroup tokens, `step` of them at a time.
template <typename Element>
void Spread(const std::byte* from, int32_t count, int32_t step, int64_t stride, std::byte* to) {
  const auto* elements = reinterpret_cast<const Element*>(from);
  auto* spread = reinterpret_cast<Element*>(to);
  for (int32_t i = 0; i < count; i += step) {
    for (int32_t j = 0; j < step; ++j) spread[i / step * stride + j] = elements[i + j];
  }
}

// One key or value in its group of tokens, narrowed with the kernels of this machine.
struct TokenStore {
  const kernels::CpuKernels& kernels;
  const KvLayout& layout;
  int32_t in_group;   // the token's place
  std::byte* narrow;  // room for one token

  void StoreKey(const float* key, std::byte* group) const {
    const int32_t size = layout.head_size;
    switch (layout.dtype) {
      case DType::kF16:
        kernels.floats_to_halves(key, size, reinterpret_cast<uint16_t*>(narrow));
        return Spread<uint16_t>(narrow, size, 1, kKeyGroup, group + in_group * sizeof(uint16_t));
      case DType::kI8:
        StoreScale(kernels.quantise_kv(key, size, reinterpret_cast<int8_t*>(narrow)), group);
        return Spread<int8_t>(narrow, size, 2, 2 * kKeyGroup, group + 2 * in_group);
      default:
        std::memcpy(narrow, key, static_cast<size_t>(size) * sizeof(float));
        return Spread<float>(narrow, size, 1, kKeyGroup, group + in_group * sizeof(float));
    }
  }

  void StoreValue(const float* value, std::byte* group) const {
    const int32_t size = layout.head_size;
    std::byte* row = group + in_group * size * layout.element_bytes();
    switch (layout.dtype) {
      case DType::kF16:
        return kernels.floats_to_halves(value, size, reinterpret_cast<uint16_t*>(row));
      case DType::kI8:
        StoreScale(kernels.quantise_kv(value, size, reinterpret_cast<int8_t*>(narrow)), group);
        return Spread<int8_t>(narrow, size, 1, 2, group + in_group / 2 * 2 * size + in_group % 2);
      default:
        std::memcpy(row, value, static_cast<size_t>(size) * sizeof(float));
    }
  }

 private:
  void StoreScale(float scale, std::byte* group) const {
    std::byte* scales = group + int64_t{kKeyGroup} * layout.head_size;
    std::memcpy(scales + in_group * sizeof(float), &scale, sizeof(float));
  }
};

}  // namespace

void KvStore::Store(const StoreKvArgs& args) {
  for (AlignedMemory& memory : narrow_) memory.Grow<float>(args.pool->layout.head_size);
  for (const AttentionSequence& sequence : args.sequences) {
    const int32_t tasks = (sequence.rows + kStoreRowsPerTask - 1) / kStoreRowsPerTask;
    pool_.Run(tasks, [&](int64_t task, int32_t rank) {
      const auto begin = static_cast<int32_t>(task) * kStoreRowsPerTask;
      const int32_t end = std::min(sequence.rows, begin + kStoreRowsPerTask);
      for (int32_t row = begin; row < end; ++row) {
        StoreRow(args, sequence, row, narrow_[static_cast<size_t>(rank)].data());
      }
    });
  }
}

void KvStore::StoreRow(const StoreKvArgs& args, const AttentionSequence& sequence, int32_t row,
                       std::byte* narrow) const {
  const KvLayout& layout = args.pool->layout;
  const int32_t position = sequence.position_begin + row;
  const BlockId block =
      sequence.block_table[static_cast<size_t>(position / layout.tokens_per_block)];
  const int32_t token = position % layout.tokens_per_block;
  const TokenStore store = {kernels_, layout, token % kKeyGroup, narrow};
  const int64_t group = token / kKeyGroup * kKeyGroup * layout.token_bytes();
  std::byte* keys = KvPlane(*args.pool, block, args.layer, false) + group;
  std::byte* values = KvPlane(*args.pool, block, args.layer, true) + group;
  const int64_t first = (int64_t{sequence.row_begin} + row) * layout.kv_heads;
  for (int32_t h = 0; h < layout.kv_heads; ++h) {
    store.StoreKey(args.k + (first + h) * layout.head_size, keys + h * layout.head_bytes());
    store.StoreValue(args.v + (first + h) * layout.head_size, values + h * layout.head_bytes());
  }
}

}  // namespace polysil

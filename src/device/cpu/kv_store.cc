#include "device/cpu/kv_store.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "device/cpu/kv_planes.h"

namespace polysil {
namespace {

using kernels::kKeyGroup;

constexpr int32_t kStoreRowsPerTask = 16;

}  // namespace

void KvStore::Store(const StoreKvArgs& args) {
  const bool halves = args.pool->layout.dtype == DType::kF16;
  for (int32_t rank = 0; rank < pool_.threads(); ++rank) KeyOf(rank, args.pool->layout.head_size);
  for (const AttentionSequence& sequence : args.sequences) {
    const int32_t tasks = (sequence.rows + kStoreRowsPerTask - 1) / kStoreRowsPerTask;
    pool_.Run(tasks, [&](int64_t task, int32_t rank) {
      const auto begin = static_cast<int32_t>(task) * kStoreRowsPerTask;
      const int32_t end = std::min(sequence.rows, begin + kStoreRowsPerTask);
      for (int32_t row = begin; row < end; ++row) {
        halves ? StoreRow<uint16_t>(args, sequence, row, rank)
               : StoreRow<float>(args, sequence, row, rank);
      }
    });
  }
}

float* KvStore::KeyOf(int32_t rank, int32_t head_size) {
  return keys_[static_cast<size_t>(rank)].Grow<float>(head_size);
}

template <typename Element>
void KvStore::StoreRow(const StoreKvArgs& args, const AttentionSequence& sequence, int32_t row,
                       int32_t rank) {
  const KvLayout& layout = args.pool->layout;
  const int32_t position = sequence.position_begin + row;
  const BlockId block =
      sequence.block_table[static_cast<size_t>(position / layout.tokens_per_block)];
  const int64_t token = position % layout.tokens_per_block;
  const auto narrow = [&](const float* from, Element* to) {
    if constexpr (std::is_same_v<Element, float>) {
      std::memcpy(to, from, static_cast<size_t>(layout.head_size) * sizeof(float));
    } else {
      kernels_.floats_to_halves(from, layout.head_size, to);
    }
  };
  auto* key = reinterpret_cast<Element*>(KeyOf(rank, layout.head_size));
  for (int32_t h = 0; h < layout.kv_heads; ++h) {
    const int64_t from =
        (int64_t{sequence.row_begin + row} * layout.kv_heads + h) * layout.head_size;
    const int64_t head = h * layout.head_bytes();
    auto* keys = reinterpret_cast<Element*>(KvPlane(*args.pool, block, args.layer, false) + head) +
                 token / kKeyGroup * kKeyGroup * layout.head_size + token % kKeyGroup;
    narrow(args.k + from, key);
    for (int32_t d = 0; d < layout.head_size; ++d) keys[d * kKeyGroup] = key[d];
    auto* values = reinterpret_cast<Element*>(KvPlane(*args.pool, block, args.layer, true) + head);
    narrow(args.v + from, values + token * layout.head_size);
  }
}

}  // namespace polysil

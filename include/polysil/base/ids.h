// Ids are different types where they cross a seam, so that one cannot be passed for another.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace polysil {

// A token of the model's vocabulary: 0 <= id < ModelSpec::vocab_size.
using TokenId = int32_t;

template <typename Tag, typename Value>
struct Id {
  Value value = 0;
  friend auto operator<=>(const Id&, const Id&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value);
  }
};

// One client call. Unique within a process, given by the engine, rising.
using RequestId = Id<struct RequestTag, uint64_t>;
// One token stream of a request (n > 1 makes several). Unique within a process, rising.
using SequenceId = Id<struct SequenceTag, uint64_t>;
// One KV block of a pool: 0 <= value < blocks of the pool.
using BlockId = Id<struct BlockTag, int32_t>;
// One sequence's block table in a KvManager; a small number, used again after the table is closed.
using BlockTableId = Id<struct BlockTableTag, int32_t>;

}  // namespace polysil

// BlockHash: the name of a full block's content: everything from the first token to its last.
// The first 16 bytes of SHA-256, fixed: equal in every process and release, so that replicas can
// compare names.
//
//   root(salt)          = digest("polysil kv 1" . salt)
//   next(parent, block) = digest(parent . token ids, 4 bytes each, little-endian)
//
// The salt stands in the root only and thereby in every name of the chain.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "polysil/base/ids.h"
#include "polysil/core/kv_event.h"

namespace polysil {

struct BlockHash {
  KvBlockName bytes{};

  friend bool operator==(const BlockHash&, const BlockHash&) = default;
  // The bytes are spread evenly already; eight of them place an entry.
  template <typename H>
  friend H AbslHashValue(H h, const BlockHash& hash) {
    uint64_t word = 0;
    std::memcpy(&word, hash.bytes.data(), sizeof(word));
    return H::combine(std::move(h), word);
  }
};

// How bytes become a name. Hits never rest on it alone, so a weak one costs hits, not truth.
using DigestFunction = BlockHash (*)(std::span<const std::byte> bytes);

BlockHash Sha256(std::span<const std::byte> bytes);

BlockHash RootHash(std::string_view salt, DigestFunction digest);
// tokens: one full block; at most kTokensPerBlockMax.
BlockHash NextHash(const BlockHash& parent, std::span<const TokenId> tokens, DigestFunction digest);

inline constexpr int32_t kTokensPerBlockMax = 1024;

}  // namespace polysil

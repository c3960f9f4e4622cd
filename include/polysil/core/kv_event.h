// KvEvent: what became findable in the prefix cache of one replica and what no longer is, so that a
// router can send a request to where its prefix lies. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/core/step.h"

namespace polysil {

enum class KvEventKind : uint8_t {
  kStored,   // the block can be found in `tier`
  kRemoved,  // it can no longer be found in `tier`
  kCleared,  // nothing can be found in any tier; the first event of every engine
};

// The name of a block's content and all before it; see kv/block_hash.h.
using KvBlockName = std::array<uint8_t, 16>;

struct KvEvent {
  KvEventKind kind = KvEventKind::kCleared;
  KvTier tier = KvTier::kDevice;
  KvBlockName hash{};
  // Of the block before, or the salted root. Zero where a stored block has only changed its tier.
  KvBlockName parent{};
};

// In order. Each kStored has its token ids in `tokens`, one block after the other.
struct KvEvents {
  std::vector<KvEvent> events;
  std::vector<TokenId> tokens;

  void Clear() {
    events.clear();
    tokens.clear();
  }
};

}  // namespace polysil

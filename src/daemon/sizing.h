// Sizing: how long a context and how many KV blocks, where the configuration leaves it to us.
// Pure functions of the model, the configuration and the memory that is there.
#pragma once

#include <cstdint>

#include "polysil/base/status.h"
#include "polysil/core/kv_layout.h"
#include "polysil/v1/config.pb.h"

namespace polysil {

struct KvSizing {
  int32_t context_tokens = 0;
  int32_t blocks = 0;
};

// `context_tokens_trained` is the model's own limit. The pool takes a quarter of `memory_bytes`, at
// most 2 GiB, but always one whole context, unless kv.blocks says otherwise; the default context
// shrinks to what the pool can hold. INVALID_ARGUMENT where the configured values contradict each
// other.
StatusOr<KvSizing> SizeKv(const v1::Config& config, int32_t context_tokens_trained,
                          const KvLayout& layout, int64_t memory_bytes);

}  // namespace polysil

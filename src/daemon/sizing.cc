#include "daemon/sizing.h"

#include <algorithm>

namespace polysil {
namespace {

constexpr int64_t kPoolBytesMax = int64_t{2} << 30;
constexpr int32_t kBlocksMax = 1 << 24;

}  // namespace

StatusOr<KvSizing> SizeKv(const v1::Config& config, int32_t context_tokens_trained,
                          const KvLayout& layout, int64_t memory_bytes) {
  const bool context_given = config.model().has_context_tokens();
  int64_t context = context_given ? config.model().context_tokens() : context_tokens_trained;
  if (context > context_tokens_trained) {
    return InvalidArgument("model.context_tokens is {}; the model was trained for {}", context,
                           context_tokens_trained);
  }
  const int64_t block_tokens = layout.tokens_per_block;
  const int64_t affordable =
      std::clamp<int64_t>(memory_bytes / 2 / layout.block_bytes(), 2, kBlocksMax);
  const auto blocks_for = [block_tokens](int64_t tokens) {
    return (tokens + block_tokens - 1) / block_tokens;
  };
  int64_t blocks = config.kv().blocks();
  if (!config.kv().has_blocks()) {
    const int64_t usual = std::min(memory_bytes / 4, kPoolBytesMax) / layout.block_bytes();
    blocks = std::max(usual, blocks_for(context));
    if (!context_given) blocks = std::min(blocks, affordable);
    blocks = std::clamp<int64_t>(blocks, 2, kBlocksMax);
  }
  if (context_given && blocks_for(context) > blocks) {
    return InvalidArgument(
        "model.context_tokens is {}, but kv.blocks {} of {} tokens hold {}; give at least {} "
        "blocks",
        context, blocks, block_tokens, blocks * block_tokens, blocks_for(context));
  }
  if (blocks > affordable * 2) {
    return InvalidArgument("kv.blocks is {}: {} MiB of KV, but {} MiB of memory are free", blocks,
                           blocks * layout.block_bytes() >> 20, memory_bytes >> 20);
  }
  const int64_t host_blocks = config.kv().host_blocks();
  if (blocks + host_blocks > affordable * 2) {
    return InvalidArgument(
        "kv.host_blocks is {}: {} MiB of KV beside the pool's {}, but {} MiB of memory are free",
        host_blocks, host_blocks * layout.block_bytes() >> 20, blocks * layout.block_bytes() >> 20,
        memory_bytes >> 20);
  }
  context = std::min(context, blocks * block_tokens);
  return KvSizing{.context_tokens = static_cast<int32_t>(context),
                  .blocks = static_cast<int32_t>(blocks)};
}

}  // namespace polysil

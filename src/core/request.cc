#include "polysil/core/request.h"

#include <algorithm>

namespace polysil {
namespace {

// A salt is a name, not a payload; it is kept with every request and every first block.
constexpr size_t kCacheSaltBytesMax = 1024;
constexpr size_t kTenantBytesMax = 256;

Status ValidatePrompt(const Request& request, const RequestLimits& limits) {
  if (request.prompt.empty()) return InvalidArgument("prompt has no token, at least one is needed");
  const int64_t tokens = static_cast<int64_t>(request.prompt.size());
  // One place is left for the first output token.
  if (tokens >= limits.context_tokens_max) {
    return InvalidArgument(
        "prompt has {} tokens, the model accepts {} with room for one output token", tokens,
        limits.context_tokens_max - 1);
  }
  // The last output token's KV is never computed, so the prompt may fill the pool.
  if (tokens > limits.kv_tokens_max) {
    return InvalidArgument("prompt has {} tokens, the KV pool holds {}", tokens,
                           limits.kv_tokens_max);
  }
  // All are looked at before the first wrong one is sought, by sign bits, which takes several ids
  // at once: that of an id is set below 0, that of the difference above the last id.
  uint32_t signs = 0;
  for (const TokenId id : request.prompt) {
    signs |= static_cast<uint32_t>(id) |
             (static_cast<uint32_t>(limits.vocab_size - 1) - static_cast<uint32_t>(id));
  }
  if (signs >> 31 == 0) return OkStatus();
  const auto outside = std::ranges::find_if(
      request.prompt, [&limits](TokenId id) { return id < 0 || id >= limits.vocab_size; });
  return InvalidArgument("prompt token {} is {}, the vocabulary has {}",
                         outside - request.prompt.begin(), *outside, limits.vocab_size);
}

Status ValidateEndTokens(const Request& request, const RequestLimits& limits) {
  TokenId previous = -1;
  for (const TokenId id : request.end_token_ids) {
    if (id < 0 || id >= limits.vocab_size) {
      return InvalidArgument("end_token_ids holds {}, the vocabulary has {}", id,
                             limits.vocab_size);
    }
    if (id <= previous) {
      return InvalidArgument("end_token_ids holds {} after {}, ids must rise", id, previous);
    }
    previous = id;
  }
  return OkStatus();
}

Status ValidateRetention(const Request& request) {
  if (request.retention.size() > static_cast<size_t>(kRetentionHintsMax)) {
    return InvalidArgument("retention has {} hints, at most {} are accepted",
                           request.retention.size(), kRetentionHintsMax);
  }
  for (const RetentionHint& hint : request.retention) {
    if (hint.tokens < 1 || hint.keep_ns < 1 || hint.keep_ns > kRetentionNsMax) {
      return InvalidArgument(
          "retention of {} tokens for {} ns, must be of 1 token or more for 1 to {} ns",
          hint.tokens, hint.keep_ns, kRetentionNsMax);
    }
  }
  return OkStatus();
}

}  // namespace

Status Validate(const Request& request, const RequestLimits& limits) {
  RETURN_IF_ERROR(ValidatePrompt(request, limits));
  RETURN_IF_ERROR(Validate(request.sampling, limits.vocab_size));
  RETURN_IF_ERROR(ValidateEndTokens(request, limits));
  if (request.sequences < 1 || request.sequences > limits.sequences_max) {
    return InvalidArgument("sequences (n) is {}, must lie in [1, {}]", request.sequences,
                           limits.sequences_max);
  }
  if (request.deadline_ns < 0) {
    return InvalidArgument("deadline_ns is {}, must be 0 or more", request.deadline_ns);
  }
  RETURN_IF_ERROR(ValidateRetention(request));
  if (request.cache_salt.size() > kCacheSaltBytesMax) {
    return InvalidArgument("cache_salt has {} bytes, at most {} are accepted",
                           request.cache_salt.size(), kCacheSaltBytesMax);
  }
  if (request.tenant.size() > kTenantBytesMax) {
    return InvalidArgument("tenant has {} bytes, at most {} are accepted", request.tenant.size(),
                           kTenantBytesMax);
  }
  return OkStatus();
}

}  // namespace polysil

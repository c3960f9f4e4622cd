#include "kv/block_hash.h"

// The newer interface allocates, and takes twice the time for the few bytes of a block.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "polysil/base/check.h"

namespace polysil {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as they lie");

BlockHash Sha256(std::span<const std::byte> bytes) {
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest;
  SHA256_CTX state;
  SHA256_Init(&state);
  SHA256_Update(&state, bytes.data(), bytes.size());
  SHA256_Final(digest.data(), &state);
  BlockHash hash;
  std::copy_n(digest.begin(), hash.bytes.size(), hash.bytes.begin());
  return hash;
}

BlockHash RootHash(std::string_view salt, DigestFunction digest) {
  std::string text = "polysil kv 1";
  text += salt;
  return digest(std::as_bytes(std::span(text)));
}

BlockHash NextHash(const BlockHash& parent, std::span<const TokenId> tokens,
                   DigestFunction digest) {
  CHECK(tokens.size() <= static_cast<size_t>(kTokensPerBlockMax), "{} tokens", tokens.size());
  std::array<std::byte, sizeof(BlockHash) + sizeof(TokenId) * kTokensPerBlockMax> bytes;
  std::memcpy(bytes.data(), parent.bytes.data(), parent.bytes.size());
  std::memcpy(bytes.data() + parent.bytes.size(), tokens.data(), tokens.size_bytes());
  return digest(std::span(bytes).first(parent.bytes.size() + tokens.size_bytes()));
}

}  // namespace polysil

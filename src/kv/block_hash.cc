#include "kv/block_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "polysil/base/check.h"

namespace polysil {

static_assert(std::endian::native == std::endian::little, "token ids are hashed as they lie");

BlockHash Sha256(std::span<const std::byte> bytes) {
  // Fetched once: looking the algorithm up costs more than hashing a block.
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  std::array<uint8_t, 32> digest;
  unsigned int size = 0;
  const int done = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, algorithm, nullptr);
  CHECK(done == 1 && size == digest.size(), "SHA-256 gave {} bytes", size);
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

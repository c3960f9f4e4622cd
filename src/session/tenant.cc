#include "session/tenant.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "session/text_call.h"

namespace polysil {
namespace {

constexpr size_t kTenantIdBytesMax = 128;

bool IsNameByte(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         std::string_view("._:/+=@-").find(c) != std::string_view::npos;
}

// The key of "Bearer KEY"; empty: there is none.
std::string_view BearerKey(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  const auto same = [](char left, char right) {
    return (left >= 'A' && left <= 'Z' ? left - 'A' + 'a' : left) == right;
  };
  if (!std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, same)) return {};
  const size_t first = authorization.find_first_not_of(' ', kScheme.size());
  if (first == std::string_view::npos) return {};
  return authorization.substr(first, authorization.find_last_not_of(' ') + 1 - first);
}

std::string HexDigest(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

StatusOr<std::string> TenantOf(TenantSource source, const Caller& caller) {
  if (source == TenantSource::kApiKey) {
    const std::string_view key = BearerKey(caller.authorization);
    return key.empty() ? std::string() : "key:" + HexDigest(key);
  }
  if (source == TenantSource::kHeader && caller.tenant_id) {
    const std::string& id = *caller.tenant_id;
    if (id.empty() || id.size() > kTenantIdBytesMax || !std::ranges::all_of(id, IsNameByte)) {
      return WithField(InvalidArgument("X-Tenant-Id has {} bytes; it must be 1 to {} of A-Z a-z "
                                       "0-9 . _ : / + = @ -",
                                       id.size(), kTenantIdBytesMax),
                       "X-Tenant-Id");
    }
    return "id:" + id;
  }
  return std::string();
}

}  // namespace polysil

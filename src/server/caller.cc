#include "server/caller.h"

#include <iterator>
#include <optional>
#include <string>

namespace polysil {
namespace {

// The value of a key; empty where it is given more than once.
std::optional<std::string> MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto [first, last] = context.client_metadata().equal_range(key);
  if (first == last) return std::nullopt;
  if (std::next(first) != last) return std::string();
  return std::string(first->second.data(), first->second.size());
}

}  // namespace

Caller CallerOf(const grpc::CallbackServerContext& context) {
  return {.authorization = MetadataOf(context, "authorization").value_or(""),
          .tenant_id = MetadataOf(context, "x-tenant-id")};
}

}  // namespace polysil

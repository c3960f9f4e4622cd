// Whose share of the service a call takes, and whose part of the prefix cache it sees: the tenant,
// told from what came with the call. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "polysil/base/status.h"

namespace polysil {

// What tells the tenants apart. Anybody can write any key or name into a request, so the other two
// are for servers behind something that checks them.
enum class TenantSource {
  kNone,    // all are one tenant
  kApiKey,  // "Authorization: Bearer KEY"; a tenant for each key
  kHeader,  // "X-Tenant-Id: NAME"
};

// As it came with the call: HTTP header fields or gRPC metadata. Not checked.
struct Caller {
  std::string authorization;
  std::optional<std::string> tenant_id;
};

// A name that no other source gives and that holds no key; empty for all whom nothing tells apart.
// INVALID_ARGUMENT where X-Tenant-Id is the source and is not 1 to 128 of [A-Za-z0-9._:/+=@-].
StatusOr<std::string> TenantOf(TenantSource source, const Caller& caller);

}  // namespace polysil

// Who calls, as gRPC's metadata say.
#pragma once

#include <grpcpp/server_context.h>

#include "session/tenant.h"

namespace polysil {

// A field that is given more than once is empty, and so names nobody.
Caller CallerOf(const grpc::CallbackServerContext& context);

}  // namespace polysil

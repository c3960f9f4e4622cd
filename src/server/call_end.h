// How a call ends, as its client sees it.
#pragma once

#include <grpcpp/server_context.h>

#include <cstdint>
#include <optional>

#include "grpcpp/support/status.h"
#include "polysil/base/status.h"

namespace polysil {

// What to finish the call of `context` with: canonical codes, one to one. Puts the seconds into the
// trailing metadata "retry-after" where there are some (TextService::RetryAfterSeconds).
grpc::Status EndOf(const Status& status, std::optional<int32_t> retry_after_seconds,
                   grpc::CallbackServerContext& context);

}  // namespace polysil

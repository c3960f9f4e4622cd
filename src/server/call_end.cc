#include "server/call_end.h"

#include <string>

namespace polysil {

grpc::Status EndOf(const Status& status, std::optional<int32_t> retry_after_seconds,
                   grpc::CallbackServerContext& context) {
  if (status.ok()) return grpc::Status::OK;
  if (retry_after_seconds) {
    context.AddTrailingMetadata("retry-after", std::to_string(*retry_after_seconds));
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), Message(status));
}

}  // namespace polysil

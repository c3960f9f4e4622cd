// RefusedStream: the reactor of a streaming call that ends before it has begun.
#pragma once

#include <grpcpp/support/server_callback.h>

namespace polysil {

template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace polysil

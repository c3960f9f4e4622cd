// GrpcServer: the gRPC face (proto/polysil/v1/inference.proto, admin.proto), the standard health
// service and reflection. Owns its port and the library's threads; one reactor per call. Knows text
// calls and protobuf, no block and no step.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "polysil/base/status.h"
#include "session/text_slot.h"

namespace polysil {

struct GrpcServerOptions {
  std::string address = "127.0.0.1:50051";      // HOST:PORT, [IPV6]:PORT; port 0 takes a free one
  size_t message_bytes_max = 16 * 1024 * 1024;  // of a request
  size_t output_bytes_max = 4 * 1024 * 1024;    // of a stream that its reader is behind with
  std::chrono::milliseconds health_interval{250};  // how often health follows readiness
  std::string version;                             // of this program
};

class GrpcServer final {
 public:
  // Binds, listens and answers; calls that need the text service with UNAVAILABLE while `slot` is
  // empty. INVALID_ARGUMENT for an address that does not parse, UNAVAILABLE where it cannot be
  // bound. `slot` outlives the server.
  static StatusOr<std::unique_ptr<GrpcServer>> Create(const GrpcServerOptions& options,
                                                      const TextSlot& slot);
  // Stop with no grace.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // As bound: "127.0.0.1:43211".
  const std::string& address() const;
  uint16_t port() const;
  // The health service follows readiness at an interval; this makes it look now.
  void UpdateHealth();
  // Refuses new calls, waits at most `grace` for those that run, then cancels the rest. Idempotent.
  void Stop(std::chrono::milliseconds grace);

 private:
  class Running;
  explicit GrpcServer(std::unique_ptr<Running> running);

  std::unique_ptr<Running> running_;
};

}  // namespace polysil

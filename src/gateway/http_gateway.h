// HttpGateway: the OpenAI-compatible HTTP face; docs/api.md is its contract. Owns its listener, its
// connections and its io threads ("http-0", ...). Knows text calls and JSON, no tokens' meaning, no
// engine. Plain HTTP/1.1 and 1.0; no TLS.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "polysil/base/status.h"
#include "session/text_slot.h"

namespace polysil {

// What one connection may cost.
struct HttpLimits {
  size_t header_bytes_max = 32 * 1024;
  int32_t headers_max = 128;
  size_t body_bytes_max = 16 * 1024 * 1024;
  size_t output_bytes_max = 4 * 1024 * 1024;         // of a stream that its reader is behind with
  std::chrono::milliseconds header_timeout{15'000};  // from the first byte of a request to its body
  std::chrono::milliseconds body_timeout{30'000};    // plus the time at body_bytes_per_second_min
  size_t body_bytes_per_second_min = 64 * 1024;
  std::chrono::milliseconds idle_timeout{75'000};   // between two requests
  std::chrono::milliseconds write_timeout{30'000};  // without the reader taking a byte
};

struct HttpGatewayOptions {
  std::string address = "127.0.0.1:8080";  // HOST:PORT, [IPV6]:PORT; port 0 takes a free one
  int32_t threads = 2;
  int32_t connections_max = 1024;
  size_t bodies_bytes_max = 256 * 1024 * 1024;  // of all requests being read, together
  HttpLimits limits;
  std::string version;  // of this program
};

class HttpGateway final {
 public:
  // Binds and listens; INVALID_ARGUMENT for an address that does not parse, UNAVAILABLE where it
  // cannot be bound. Requests are answered from Start on; those that need the text service with 503
  // while `slot` is empty. `slot` outlives the gateway and what runs at its service.
  static StatusOr<std::unique_ptr<HttpGateway>> Create(HttpGatewayOptions options,
                                                       const TextSlot& slot);
  // Stop with no grace.
  ~HttpGateway();
  HttpGateway(const HttpGateway&) = delete;
  HttpGateway& operator=(const HttpGateway&) = delete;

  void Start();
  // As bound: "127.0.0.1:43211".
  const std::string& address() const;
  uint16_t port() const;
  // Takes no more connections, closes idle ones, waits at most `grace` for requests in progress to
  // be answered, then closes the rest (their calls are cancelled) and ends the threads. True: none
  // was cut off. Idempotent. While the engine drains, do not call it yet: refusals are 503 answers.
  bool Stop(std::chrono::milliseconds grace);

 private:
  class Server;
  explicit HttpGateway(std::unique_ptr<Server> server);

  std::unique_ptr<Server> server_;
};

}  // namespace polysil

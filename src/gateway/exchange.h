// Exchange: one HTTP request and the way its answer goes back. The seam between the socket side
// (http_connection) and the endpoints (routes, generation), which know no sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/tenant.h"

namespace polysil {

struct HttpRequest {
  std::string method;
  std::string path;  // decoded, without the query
  std::string body;
  Caller caller;
  std::string id;                     // what the log calls it by
  int64_t age_ns = 0;                 // since its first byte came
  std::shared_ptr<void> body_charge;  // what the body holds of the gateway's budget while it lives
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// Given to the endpoint that answers. Either Reply once, or BeginStream, Write..., EndStream; these
// on the connection's thread only, inside a posted task. What is called after that, or after the
// client has gone, does nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Runs `task` on the connection's thread, later. From any thread. Dropped when the client is
  // gone.
  virtual void Post(std::function<void()> task) = 0;
  // `gone` runs, once, if the client leaves before the answer is complete, or reads too slowly; at
  // once if it has left already. From any thread.
  virtual void SetGone(std::function<void()> gone) = 0;
  virtual void Reply(HttpReply reply) = 0;
  virtual void BeginStream(std::string_view content_type) = 0;
  virtual void Write(std::string_view bytes) = 0;
  virtual void EndStream() = 0;
  // Runs `task` on the connection's thread, once, when all that was written so far is with the
  // network or the client has gone; at once if that is so. Also after Reply and EndStream.
  virtual void WhenSent(std::function<void()> task) = 0;
};

}  // namespace polysil

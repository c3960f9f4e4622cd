// HttpStreams: many HTTP requests at once on one thread, the answer of each told piece by piece as
// it arrives. The one home of libcurl. Connections are kept and used again; proxies of the
// environment are not used. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "polysil/base/clock.h"
#include "polysil/base/status.h"

namespace polysil {

enum class HttpFailure {
  kNone,
  kConnect,  // no connection, or no such host
  kTimeout,
  kDropped,  // by OnBytes
  kBroken,   // anything else: the connection ended in the middle, no HTTP
};

struct HttpEnd {
  int32_t status = 0;  // 0: there was no answer
  HttpFailure failure = HttpFailure::kNone;
  std::string message;       // of the failure, for people
  std::string content_type;  // may be empty
  int64_t sent_ns = 0;       // on the clock, when the request was written to the connection
};

// Told by Poll what happens to one request.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  // Some of the body. False: no more is wanted; the connection is closed. May not call Start.
  virtual bool OnBytes(int32_t status, std::string_view bytes) = 0;
  // The last call. May call Start.
  virtual void OnEnd(const HttpEnd& end) = 0;
};

struct HttpOptions {
  std::string api_key;  // sent as a bearer token; empty: none
  int64_t timeout_ms = 600'000;
};

class HttpStreams final {
 public:
  // `clock` must outlive it.
  static StatusOr<std::unique_ptr<HttpStreams>> Create(const HttpOptions& options,
                                                       const Clock& clock);
  // Drops what is under way; nothing is told of it.
  ~HttpStreams();
  HttpStreams(const HttpStreams&) = delete;
  HttpStreams& operator=(const HttpStreams&) = delete;

  // A POST of JSON; with an empty body a GET.
  void Start(const std::string& url, std::string body, std::unique_ptr<HttpStream> stream);
  // Waits until something happened, at most so long (rounded up to milliseconds), and tells of it.
  void Poll(int64_t timeout_ns);
  int64_t in_flight() const;

 private:
  class Transfers;
  explicit HttpStreams(std::unique_ptr<Transfers> transfers);

  std::unique_ptr<Transfers> transfers_;
};

}  // namespace polysil

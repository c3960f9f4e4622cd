// The text of HTTP answers, and the few pieces of requests that we read ourselves. Pure functions;
// the parsing of requests is Beast's, in http_connection.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace polysil {

struct ResponseHead {
  int status = 200;
  std::string_view content_type;
  std::optional<size_t> content_length;  // absent: chunked, or until the end of the connection
  bool chunked = false;
  bool http10 = false;
  bool keep_alive = true;
  std::string_view request_id;
  std::vector<std::pair<std::string, std::string>> headers;
};

// Status line and headers, with the empty line. Line breaks in values become spaces.
std::string FormatHead(const ResponseHead& head);

// `bytes`, not empty, as one chunk of a chunked body.
std::string FormatChunk(std::string_view bytes);

// The path of a request target, without scheme, host and query, percent-decoded. Absent where it is
// not well-formed.
std::optional<std::string> PathOf(std::string_view target);

// Whether a client's request id may go into headers and logs: 1 to 128 of [A-Za-z0-9._:/+=@-].
bool IsSafeRequestId(std::string_view id);

}  // namespace polysil

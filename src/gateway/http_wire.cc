#include "gateway/http_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace polysil {
namespace {

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

void AppendHeader(std::string_view name, std::string_view value, std::string& out) {
  out += name;
  out += ": ";
  for (const char c : value) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  out += "\r\n";
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

std::string FormatHead(const ResponseHead& head) {
  std::string out = fmt::format("HTTP/1.{} {} {}\r\n", head.http10 ? 0 : 1, head.status,
                                ReasonPhrase(head.status));
  AppendHeader("Server", "polysil", out);
  AppendHeader("Content-Type", head.content_type, out);
  if (head.content_length) {
    AppendHeader("Content-Length", std::to_string(*head.content_length), out);
  }
  if (head.chunked) AppendHeader("Transfer-Encoding", "chunked", out);
  if (!head.request_id.empty()) AppendHeader("X-Request-Id", head.request_id, out);
  for (const auto& [name, value] : head.headers) AppendHeader(name, value, out);
  if (!head.keep_alive) {
    AppendHeader("Connection", "close", out);
  } else if (head.http10) {
    AppendHeader("Connection", "keep-alive", out);
  }
  return out += "\r\n";
}

std::string FormatChunk(std::string_view bytes) {
  std::string out = fmt::format("{:x}\r\n", bytes.size());
  out += bytes;
  return out += "\r\n";
}

std::optional<std::string> PathOf(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t slash = target.find('/');
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  if (!target.starts_with('/')) return std::nullopt;
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      path += target[i];
      continue;
    }
    if (i + 2 >= target.size()) return std::nullopt;
    const std::optional<int> high = HexDigit(target[i + 1]);
    const std::optional<int> low = HexDigit(target[i + 2]);
    if (!high || !low) return std::nullopt;
    path += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return path;
}

bool IsSafeRequestId(std::string_view id) {
  constexpr std::string_view kMarks = "._:/+=@-";
  const auto safe = [&](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           kMarks.find(c) != std::string_view::npos;
  };
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), safe);
}

}  // namespace polysil

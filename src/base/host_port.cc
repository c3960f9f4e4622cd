#include "base/host_port.h"

#include <charconv>

namespace polysil {

std::optional<HostPort> ParseHostPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = address.substr(0, colon);
  const std::string_view port_text = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;  // IPv6 needs its brackets
  }
  HostPort result{.host = std::string(host)};
  const auto parsed =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), result.port);
  if (parsed.ec != std::errc() || parsed.ptr != port_text.data() + port_text.size()) {
    return std::nullopt;
  }
  return result;
}

}  // namespace polysil

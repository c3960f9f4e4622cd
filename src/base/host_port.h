// An address as people write it: "HOST:PORT" or "[IPV6]:PORT".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace polysil {

struct HostPort {
  std::string host;  // without brackets; may be empty
  uint16_t port = 0;
};

// None where it is not so written.
std::optional<HostPort> ParseHostPort(std::string_view address);

}  // namespace polysil

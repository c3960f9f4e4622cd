// Why an address cannot be listened at, since gRPC does not say.
#pragma once

#include <string>

#include "base/host_port.h"

namespace polysil {

// In the system's words, by trying: "Address already in use". Empty: now it can.
std::string BindFailure(const HostPort& address);

}  // namespace polysil

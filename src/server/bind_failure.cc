#include "server/bind_failure.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace polysil {
namespace {

int BindError(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // As gRPC does: an address is free although old connections linger.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error = ::bind(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace

std::string BindFailure(const HostPort& address) {
  const addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  const char* const host = address.host.empty() ? nullptr : address.host.c_str();
  const int unresolved = ::getaddrinfo(host, std::to_string(address.port).c_str(), &hints, &list);
  if (unresolved != 0) return ::gai_strerror(unresolved);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (const int error = BindError(*entry)) return std::strerror(error);
  }
  return {};
}

}  // namespace polysil

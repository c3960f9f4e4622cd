// CHECK: a broken invariant ends the process, in release builds too. Not for client input.
//   CHECK(blocks_free >= 0, "blocks_free is {}", blocks_free);
#pragma once

#include <fmt/format.h>

#include <string>

namespace polysil {

// Prints file, line, condition and message to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& message);

inline std::string CheckMessage() {
  return {};
}
template <typename... Args>
std::string CheckMessage(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace polysil

#define CHECK(condition, ...)                                       \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::polysil::CheckFailed(__FILE__, __LINE__, #condition,        \
                             ::polysil::CheckMessage(__VA_ARGS__)); \
  } while (false)

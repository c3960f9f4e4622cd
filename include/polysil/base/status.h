// Status and StatusOr: how expected failures travel (client input, network, device, disk).
// A Status message is one sentence with the values in it. A "no" in the normal course of work
// (no block free) is a bool or optional; a broken invariant is a CHECK (base/check.h).
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace polysil {

using Status = absl::Status;
using StatusCode = absl::StatusCode;
template <typename T>
using StatusOr = absl::StatusOr<T>;

inline Status OkStatus() {
  return absl::OkStatus();
}

inline Status MakeStatus(StatusCode code, std::string_view message) {
  return Status(code, absl::string_view(message.data(), message.size()));
}

// The message as std::string; the distribution's Abseil has its own string_view.
inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kResourceExhausted,
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kFailedPrecondition,
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unavailable(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kUnavailable, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status DeadlineExceeded(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kDeadlineExceeded,
                    fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Cancelled(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kCancelled, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace polysil

#define RETURN_IF_ERROR(expression)                  \
  do {                                               \
    ::polysil::Status polysil_status = (expression); \
    if (!polysil_status.ok()) [[unlikely]]           \
      return polysil_status;                         \
  } while (false)

#define POLYSIL_CONCAT_INNER(a, b) a##b
#define POLYSIL_CONCAT(a, b) POLYSIL_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(target, expression) \
  POLYSIL_ASSIGN_OR_RETURN(POLYSIL_CONCAT(polysil_or_, __LINE__), target, expression)
#define POLYSIL_ASSIGN_OR_RETURN(result, target, expression) \
  auto result = (expression);                                \
  if (!result.ok()) [[unlikely]]                             \
    return std::move(result).status();                       \
  target = *std::move(result)

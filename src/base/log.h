// Log: one line per unusual event and per request at the edge, to stderr. Thread-safe. Not used in
// sched, kv, model and kernels: those return facts instead.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "polysil/base/status.h"

namespace polysil {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error", "off".
StatusOr<LogLevel> ParseLogLevel(std::string_view name);
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace polysil

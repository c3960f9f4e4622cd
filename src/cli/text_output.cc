#include "cli/text_output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace polysil {

Status FlushStdout() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return OkStatus();
  return Unavailable("stdout cannot be written: {}", std::strerror(errno));
}

void ShowProgress(const std::string& text) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\x1b[K{}", text);
  std::fflush(stderr);
}

Status CheckWritable(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return OkStatus();
  return InvalidArgument("{} cannot be written", path);
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) return InvalidArgument("{} cannot be written", path);
  return OkStatus();
}

}  // namespace polysil

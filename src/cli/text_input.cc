#include "cli/text_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "text/utf8.h"

namespace polysil {

Status CheckUtf8(std::string_view what, std::string_view text) {
  const size_t at = WellFormedBytes(text);
  if (at == text.size()) return OkStatus();
  return InvalidArgument("{} is not UTF-8: byte {} is 0x{:02x}", what, at,
                         static_cast<uint8_t>(text[at]));
}

StatusOr<std::string> ReadStdin() {
  std::string text;
  char block[65536];
  while (const size_t bytes = std::fread(block, 1, sizeof(block), stdin)) text.append(block, bytes);
  if (std::ferror(stdin) != 0) {
    return InvalidArgument("stdin cannot be read: {}", std::strerror(errno));
  }
  RETURN_IF_ERROR(CheckUtf8("stdin", text));
  return text;
}

}  // namespace polysil

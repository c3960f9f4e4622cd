// UTF-8, one character at a time, on bytes that may be ill-formed. No state, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace polysil {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr char32_t kCodepointMax = 0x10FFFF;

struct Utf8Char {
  char32_t code = kReplacementCharacter;  // U+FFFD where ill-formed
  uint32_t bytes = 1;                     // a maximal subpart where ill-formed; never 0
  bool well_formed = false;
  bool truncated = false;  // ill-formed only because the text ends: more bytes could complete it
};

// The multi-byte part of DecodeUtf8.
Utf8Char DecodeUtf8Slow(std::string_view text);

// The first character of `text`, which is not empty.
inline Utf8Char DecodeUtf8(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {.code = first, .bytes = 1, .well_formed = true};
  return DecodeUtf8Slow(text);
}

// `code` is a Unicode scalar value.
void AppendUtf8(char32_t code, std::string& out);
std::string ToUtf8(char32_t code);

// How many bytes of `text` are well-formed, from its beginning; all of them where all is.
size_t WellFormedBytes(std::string_view text);

// Appends `text` with each maximal ill-formed subpart replaced by U+FFFD.
void AppendWellFormed(std::string_view text, std::string& out);

}  // namespace polysil

#include "text/utf8.h"

#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// What may follow a lead byte (Unicode 15, table 3-7). `bytes` 0: no lead byte.
struct Lead {
  uint32_t bytes;
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char DecodeUtf8Slow(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first >= 0xE1 && first <= 0xEC && text.size() >= 3) {  // most of the three-byte characters
    const auto second = static_cast<uint8_t>(text[1]);
    const auto third = static_cast<uint8_t>(text[2]);
    if ((second & 0xC0) == 0x80 && (third & 0xC0) == 0x80) {
      const char32_t code = (first & 0x0Fu) << 12 | (second & 0x3Fu) << 6 | (third & 0x3Fu);
      return {.code = code, .bytes = 3, .well_formed = true};
    }
  }
  const Lead lead = LeadOf(first);
  if (lead.bytes == 0) return {};
  char32_t code = first & (0x7Fu >> lead.bytes);
  for (uint32_t i = 1; i < lead.bytes; ++i) {
    if (i >= text.size()) return {.bytes = i, .truncated = true};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {.bytes = i};
    code = (code << 6) | (byte & 0x3Fu);
  }
  return {.code = code, .bytes = lead.bytes, .well_formed = true};
}

void AppendUtf8(char32_t code, std::string& out) {
  CHECK(code <= kCodepointMax, "code point {:x}", static_cast<uint32_t>(code));
  const auto push = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | (code >> 6));
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | (code >> 12));
    push(0x80 | ((code >> 6) & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | (code >> 18));
    push(0x80 | ((code >> 12) & 0x3F));
    push(0x80 | ((code >> 6) & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

std::string ToUtf8(char32_t code) {
  std::string out;
  AppendUtf8(code, out);
  return out;
}

size_t WellFormedBytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char next = DecodeUtf8(text.substr(at));
    if (!next.well_formed) break;
    at += next.bytes;
  }
  return at;
}

void AppendWellFormed(std::string_view text, std::string& out) {
  size_t begin = 0;  // [begin, at) is well-formed and not yet copied
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (!c.well_formed) {
      out.append(text, begin, at - begin);
      out.append(kReplacementUtf8);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  out.append(text, begin);
}

}  // namespace polysil

#include "gateway/json_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/utf8.h"

namespace polysil {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void AppendAscii(char c, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      if (c < 0x20 || c == 0x7F) {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
      } else {
        out += c;
      }
  }
}

}  // namespace

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) < 0x80) {
      AppendAscii(c, out);
      ++i;
      continue;
    }
    const Utf8Char character = DecodeUtf8(text.substr(i));
    if (!character.well_formed) {
      out += kReplacement;
    } else if (character.code == 0x85 || character.code == 0x2028 || character.code == 0x2029) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(character.code));
    } else {
      out += text.substr(i, character.bytes);
    }
    i += character.bytes;
  }
  out += '"';
}

JsonWriter& JsonWriter::Key(std::string_view name) {
  Separate();
  AppendJsonString(name, out_);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) {
  Separate();
  AppendJsonString(text, out_);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  Separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::Float(float value) {
  constexpr float kLowest = -9999.0F;
  Separate();
  const float finite = std::isfinite(value) ? std::max(value, kLowest)
                       : value > 0          ? -kLowest
                                            : kLowest;
  fmt::format_to(std::back_inserter(out_), "{}", finite);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  return Raw(value ? "true" : "false");
}

JsonWriter& JsonWriter::Null() {
  return Raw("null");
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  out_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}

void JsonWriter::Separate() {
  if (needs_comma_) out_ += ',';
  needs_comma_ = true;
}

}  // namespace polysil

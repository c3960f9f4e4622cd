// Unicode as Python's str knows it: code points of UTF-8, classes, case mapping. Bytes that are not
// valid UTF-8 count as one code point each and keep their value. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/text.h"

namespace polysil::jinja {

struct CodePoint {
  uint32_t value = 0;  // 0xFFFFFF00 + byte for a byte that is not valid UTF-8
  size_t bytes = 0;
};

// The code point at `position`, which must be inside.
CodePoint DecodeAt(std::string_view text, size_t position);
void AppendUtf8(std::string* out, uint32_t code_point);
size_t CountCodePoints(std::string_view text);
// Byte offset of the code point with this index; the size where there are fewer.
size_t OffsetOf(std::string_view text, size_t index);

bool IsSpace(uint32_t c);      // str.isspace
bool IsAlpha(uint32_t c);      // str.isalpha
bool IsDecimal(uint32_t c);    // str.isdecimal
bool IsDigitChar(uint32_t c);  // str.isdigit
bool IsNumeric(uint32_t c);    // str.isnumeric
bool IsPrintable(uint32_t c);  // str.isprintable
bool IsUpperChar(uint32_t c);
bool IsLowerChar(uint32_t c);
bool IsTitleChar(uint32_t c);
bool IsIdentifierStart(uint32_t c);
bool IsIdentifierPart(uint32_t c);
// One of the characters at which str.splitlines splits.
bool IsLineBreak(uint32_t c);

std::string_view StripSpace(std::string_view text);

Text Upper(const Text& text);
Text Lower(const Text& text);
Text Capitalize(const Text& text);
// str.title: every letter after a non-letter.
Text TitleWords(const Text& text);
Text SwapCase(const Text& text);
Text CaseFold(const Text& text);

}  // namespace polysil::jinja

#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/jinja/case_tables.h"

namespace polysil::jinja {
namespace {

constexpr uint32_t kInvalid = 0xFFFFFF00;
constexpr uint32_t kCapitalSigma = 0x3A3;
constexpr uint32_t kCapitalDottedI = 0x130;

utf8proc_category_t Category(uint32_t c) {
  return c > 0x10FFFF ? UTF8PROC_CATEGORY_CN
                      : static_cast<utf8proc_category_t>(
                            utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->category);
}

template <size_t N>
bool InRanges(const CodeRange (&ranges)[N], uint32_t c) {
  const auto* found = std::lower_bound(std::begin(ranges), std::end(ranges), c,
                                       [](const CodeRange& r, uint32_t at) { return r.last < at; });
  return found != std::end(ranges) && found->first <= c;
}

template <size_t N>
const SpecialCase* FindSpecial(const SpecialCase (&table)[N], uint32_t c) {
  const auto* found =
      std::lower_bound(std::begin(table), std::end(table), c,
                       [](const SpecialCase& s, uint32_t at) { return s.from < at; });
  return found != std::end(table) && found->from == c ? found : nullptr;
}

void AppendCodePoint(std::string* out, uint32_t c) {
  if (c >= kInvalid) {
    out->push_back(static_cast<char>(c & 0xFF));
  } else {
    AppendUtf8(out, c);
  }
}

void AppendSpecial(std::string* out, const SpecialCase& special) {
  for (const uint32_t c : special.to) {
    if (c != 0) AppendUtf8(out, c);
  }
}

void AppendUpper(std::string* out, uint32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const SpecialCase* special = FindSpecial(kSpecialUpper, c); special != nullptr) {
    AppendSpecial(out, *special);
  } else {
    AppendCodePoint(out, c >= kInvalid ? c
                                       : static_cast<uint32_t>(
                                             utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendTitle(std::string* out, uint32_t c) {
  if (c < 0x80) {
    AppendUpper(out, c);
  } else if (const SpecialCase* special = FindSpecial(kSpecialTitle, c); special != nullptr) {
    AppendSpecial(out, *special);
  } else {
    AppendCodePoint(out, c >= kInvalid ? c
                                       : static_cast<uint32_t>(
                                             utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool IsCased(uint32_t c) {
  return IsUpperChar(c) || IsLowerChar(c) || IsTitleChar(c);
}

bool IsCaseIgnorable(uint32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 ||
             c == 0x2024 || c == 0x2027;
  }
}

// A capital sigma becomes a final one after a cased letter and not before one.
bool IsFinalSigma(std::string_view text, size_t position) {
  size_t at = position;
  while (at > 0) {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    const uint32_t c = DecodeAt(text, at).value;
    if (IsCaseIgnorable(c)) continue;
    if (!IsCased(c)) return false;
    break;
  }
  if (position == 0 || (at == 0 && IsCaseIgnorable(DecodeAt(text, 0).value))) return false;
  for (at = position + 2; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    if (!IsCaseIgnorable(c.value)) return !IsCased(c.value);
    at += c.bytes;
  }
  return true;
}

void AppendLower(std::string* out, uint32_t c, std::string_view text, size_t position) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == kCapitalDottedI) {
    out->append("i\xCC\x87");
  } else if (c == kCapitalSigma) {
    AppendUtf8(out, IsFinalSigma(text, position) ? 0x3C2 : 0x3C3);
  } else {
    AppendCodePoint(out, c >= kInvalid ? c
                                       : static_cast<uint32_t>(
                                             utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

// Maps every code point with `map(out, c, position)`; the result keeps its source's mark.
template <typename Map>
Text MapCodePoints(const Text& text, Map map) {
  Text result;
  std::string mapped;
  const std::string_view bytes = text.view();
  auto span = text.untrusted().begin();
  size_t at = 0;
  while (at < bytes.size()) {
    while (span != text.untrusted().end() && span->end <= at) ++span;
    const bool untrusted = span != text.untrusted().end() && span->begin <= at;
    const size_t stop = span == text.untrusted().end() ? bytes.size()
                        : untrusted                    ? span->end
                                                       : span->begin;
    mapped.clear();
    while (at < stop) {
      const CodePoint c = DecodeAt(bytes, at);
      map(&mapped, c.value, at);
      at += c.bytes;
    }
    result.Append(mapped, untrusted);
  }
  return result;
}

}  // namespace

CodePoint DecodeAt(std::string_view text, size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t value = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position);
  const auto length = static_cast<utf8proc_ssize_t>(std::min<size_t>(4, text.size() - position));
  const utf8proc_ssize_t used = utf8proc_iterate(bytes, length, &value);
  if (used <= 0) return {kInvalid + first, 1};
  return {static_cast<uint32_t>(value), static_cast<size_t>(used)};
}

void AppendUtf8(std::string* out, uint32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = 0xFFFD;
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t used =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(used));
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += DecodeAt(text, at).bytes;
  return count;
}

size_t OffsetOf(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += DecodeAt(text, at).bytes;
  return at;
}

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsAlpha(uint32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_ND;
}
bool IsDigitChar(uint32_t c) {
  return IsDecimal(c) || InRanges(kDigits, c);
}

bool IsNumeric(uint32_t c) {
  const utf8proc_category_t category = Category(c);
  return (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) ||
         InRanges(kNumericLetters, c);
}

bool IsPrintable(uint32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool IsUpperChar(uint32_t c) {
  return c <= 0x10FFFF && utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool IsLowerChar(uint32_t c) {
  return c <= 0x10FFFF && utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0;
}
bool IsTitleChar(uint32_t c) {
  return Category(c) == UTF8PROC_CATEGORY_LT;
}

bool IsIdentifierStart(uint32_t c) {
  return c == '_' || IsAlpha(c) || Category(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(uint32_t c) {
  if (IsIdentifierStart(c)) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0xB7;
  }
}

bool IsLineBreak(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::string_view StripSpace(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = DecodeAt(text, 0);
    if (!IsSpace(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 &&
           (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
      --at;
    }
    const CodePoint c = DecodeAt(text, at);
    if (at + c.bytes != text.size() || !IsSpace(c.value)) break;
    text = text.substr(0, at);
  }
  return text;
}

Text Upper(const Text& text) {
  return MapCodePoints(text, [](std::string* out, uint32_t c, size_t) { AppendUpper(out, c); });
}

Text Lower(const Text& text) {
  return MapCodePoints(text, [&text](std::string* out, uint32_t c, size_t at) {
    AppendLower(out, c, text.view(), at);
  });
}

Text Capitalize(const Text& text) {
  return MapCodePoints(text, [&text](std::string* out, uint32_t c, size_t at) {
    if (at == 0) {
      AppendTitle(out, c);
    } else {
      AppendLower(out, c, text.view(), at);
    }
  });
}

Text TitleWords(const Text& text) {
  bool in_word = false;
  return MapCodePoints(text, [&text, &in_word](std::string* out, uint32_t c, size_t at) {
    if (in_word) {
      AppendLower(out, c, text.view(), at);
    } else {
      AppendTitle(out, c);
    }
    in_word = IsCased(c);
  });
}

Text SwapCase(const Text& text) {
  return MapCodePoints(text, [&text](std::string* out, uint32_t c, size_t at) {
    if (IsUpperChar(c)) {
      AppendLower(out, c, text.view(), at);
    } else if (IsLowerChar(c)) {
      AppendUpper(out, c);
    } else {
      AppendCodePoint(out, c);
    }
  });
}

Text CaseFold(const Text& text) {
  return MapCodePoints(text, [](std::string* out, uint32_t c, size_t) {
    if (c >= kInvalid) {
      AppendCodePoint(out, c);
      return;
    }
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded,
                                                           8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i) {
      AppendUtf8(out, static_cast<uint32_t>(folded[i]));
    }
  });
}

}  // namespace polysil::jinja

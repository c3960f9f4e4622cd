#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>

#include "polysil/base/check.h"
#include "text/byte_alphabet.h"
#include "text/codepoint_set.h"
#include "text/space_mark.h"
#include "text/utf8.h"

namespace polysil {
namespace {

bool IsAscii(char c) {
  return static_cast<uint8_t>(c) < 0x80;
}

// Calls visit(character, its bytes) for each; ill-formed bytes go to the output unchanged.
template <typename Visit>
std::string MapCharacters(std::string_view text, Visit visit) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    const std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    if (c.well_formed) {
      visit(c.code, bytes, out);
    } else {
      out += bytes;
    }
  }
  return out;
}

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form)
      : compose_(form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc),
        compatible_(form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) {}

  // Runs of ASCII stay as they are, but for the last character, which may compose with what
  // follows.
  std::string Normalize(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      if (IsAscii(text[at])) {
        ++at;
        continue;
      }
      const size_t begin = std::max(done, at == 0 ? 0 : at - 1);
      out.append(text, done, begin - done);
      while (at < text.size() && !IsAscii(text[at])) ++at;
      AppendNormalized(std::string_view(text).substr(begin, at - begin), out);
      done = at;
    }
    out.append(text, done);
    return out;
  }

 private:
  void AppendNormalized(std::string_view text, std::string& out) const {
    std::vector<int32_t> codes;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(text.substr(at));
      if (c.well_formed) {
        AppendDecomposed(static_cast<int32_t>(c.code), codes);
      } else {
        FinishRun(codes, out);
        out += text.substr(at, c.bytes);
      }
      at += c.bytes;
    }
    FinishRun(codes, out);
  }

  void AppendDecomposed(int32_t code, std::vector<int32_t>& codes) const {
    const auto options =
        static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible_ ? UTF8PROC_COMPAT : 0));
    int32_t buffer[64];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(code, buffer, std::size(buffer), options, &boundary);
    CHECK(count >= 0 && count <= static_cast<int64_t>(std::size(buffer)));
    codes.insert(codes.end(), buffer, buffer + count);
  }

  void FinishRun(std::vector<int32_t>& codes, std::string& out) const {
    // Marks in canonical order. utf8proc's own ordering is quadratic in a run of marks.
    const auto combining_class = [](int32_t code) {
      return utf8proc_get_property(code)->combining_class;
    };
    for (size_t begin = 0; begin < codes.size();) {
      size_t end = begin + 1;
      if (combining_class(codes[begin]) != 0) {
        while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
        std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(begin),
                         codes.begin() + static_cast<ptrdiff_t>(end), [&](int32_t a, int32_t b) {
                           return combining_class(a) < combining_class(b);
                         });
      }
      begin = end;
    }
    auto count = static_cast<int64_t>(codes.size());
    if (compose_) {
      const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
      count = utf8proc_normalize_utf32(codes.data(), count, options);
      CHECK(count >= 0);
    }
    for (int64_t i = 0; i < count; ++i) {
      AppendUtf8(static_cast<char32_t>(codes[static_cast<size_t>(i)]), out);
    }
    codes.clear();
  }

  const bool compose_;
  const bool compatible_;
};

class LowerCaseNormalizer final : public Normalizer {
 public:
  std::string Normalize(std::string text) const override {
    return MapCharacters(text, [](char32_t code, std::string_view /*bytes*/, std::string& out) {
      constexpr char32_t kCapitalIWithDot = 0x130;
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(code))), out);
      // The only character whose full lower case is longer: i and a combining dot.
      if (code == kCapitalIWithDot) AppendUtf8(0x307, out);
    });
  }
};

class StripMarksNormalizer final : public Normalizer {
 public:
  std::string Normalize(std::string text) const override {
    return MapCharacters(text, [](char32_t code, std::string_view bytes, std::string& out) {
      if (!IsMark(code)) out += bytes;
    });
  }
};

class StripWhiteSpaceNormalizer final : public Normalizer {
 public:
  StripWhiteSpaceNormalizer(bool left, bool right) : left_(left), right_(right) {}
  std::string Normalize(std::string text) const override {
    std::string_view rest = text;
    while (left_ && !rest.empty()) {
      const Utf8Char c = DecodeUtf8(rest);
      if (!IsWhiteSpace(c.code)) break;
      rest.remove_prefix(c.bytes);
    }
    while (right_ && !rest.empty()) {
      size_t last = rest.size() - 1;
      while (last > 0 && (static_cast<uint8_t>(rest[last]) & 0xC0) == 0x80) --last;
      if (!IsWhiteSpace(DecodeUtf8(rest.substr(last)).code)) break;
      rest = rest.substr(0, last);
    }
    return std::string(rest);
  }

 private:
  const bool left_;
  const bool right_;
};

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string Normalize(std::string text) const override {
    return text.empty() ? text : prefix_ + text;
  }

 private:
  const std::string prefix_;
};

class ReplaceTextNormalizer final : public Normalizer {
 public:
  ReplaceTextNormalizer(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {
    CHECK(!pattern_.empty());
  }
  std::string Normalize(std::string text) const override {
    return ReplaceAll(text, pattern_, content_);
  }

 private:
  const std::string pattern_;
  const std::string content_;
};

class ReplaceRegexNormalizer final : public Normalizer {
 public:
  ReplaceRegexNormalizer(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string Normalize(std::string text) const override {
    std::string out;
    size_t done = 0;
    Regex::Search search(pattern_, text);
    while (const auto match = search.Next()) {
      out.append(text, done, match->first - done).append(content_);
      done = match->second;
    }
    out.append(text, done);
    return out;
  }

 private:
  const Regex pattern_;
  const std::string content_;
};

class BytesAsCharactersNormalizer final : public Normalizer {
 public:
  std::string Normalize(std::string text) const override {
    std::string out;
    for (const char c : text) AppendUtf8(CharacterOfByte(static_cast<uint8_t>(c)), out);
    return out;
  }
};

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  std::string Normalize(std::string text) const override {
    for (const auto& part : parts_) text = part->Normalize(std::move(text));
    return text;
  }

 private:
  const std::vector<std::unique_ptr<Normalizer>> parts_;
};

class NmtNormalizer final : public Normalizer {
 public:
  std::string Normalize(std::string text) const override {
    return MapCharacters(text, [](char32_t code, std::string_view bytes, std::string& out) {
      if (IsDropped(code)) return;
      if (IsSpace(code)) {
        out += ' ';
      } else {
        out += bytes;
      }
    });
  }

 private:
  static bool IsDropped(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }
  static bool IsSpace(char32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class BertCleanNormalizer final : public Normalizer {
 public:
  explicit BertCleanNormalizer(const BertOptions& options) : options_(options) {}
  std::string Normalize(std::string text) const override {
    return MapCharacters(text, [this](char32_t code, std::string_view bytes, std::string& out) {
      if (options_.clean_text) {
        if (code == 0 || code == kReplacementCharacter || IsControl(code)) return;
        if (IsWhiteSpace(code)) {
          out += ' ';
          return;
        }
      }
      const bool apart = options_.chinese_characters && IsChinese(code);
      if (apart) out += ' ';
      out += bytes;
      if (apart) out += ' ';
    });
  }

 private:
  static bool IsControl(char32_t code) {
    if (code == '\t' || code == '\n' || code == '\r') return false;
    const auto category = utf8proc_category(static_cast<int32_t>(code));
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CS;
  }
  static bool IsChinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  const BertOptions options_;
};

class StripNonspacingNormalizer final : public Normalizer {
 public:
  std::string Normalize(std::string text) const override {
    return MapCharacters(text, [](char32_t code, std::string_view bytes, std::string& out) {
      const auto category = utf8proc_category(static_cast<int32_t>(code));
      if (category != UTF8PROC_CATEGORY_MN) out += bytes;
    });
  }
};

}  // namespace

std::unique_ptr<Normalizer> NormalizeUnicode(UnicodeForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}
std::unique_ptr<Normalizer> LowerCase() {
  return std::make_unique<LowerCaseNormalizer>();
}
std::unique_ptr<Normalizer> StripMarks() {
  return std::make_unique<StripMarksNormalizer>();
}
std::unique_ptr<Normalizer> StripWhiteSpace(bool left, bool right) {
  return std::make_unique<StripWhiteSpaceNormalizer>(left, right);
}
std::unique_ptr<Normalizer> Prepend(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}
std::unique_ptr<Normalizer> ReplaceText(std::string pattern, std::string content) {
  return std::make_unique<ReplaceTextNormalizer>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> ReplaceRegex(Regex pattern, std::string content) {
  return std::make_unique<ReplaceRegexNormalizer>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> BytesAsCharacters() {
  return std::make_unique<BytesAsCharactersNormalizer>();
}
std::unique_ptr<Normalizer> NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) {
  return std::make_unique<SequenceNormalizer>(std::move(parts));
}
std::unique_ptr<Normalizer> CleanNmt() {
  return std::make_unique<NmtNormalizer>();
}

std::unique_ptr<Normalizer> NormalizeBert(const BertOptions& options) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  parts.push_back(std::make_unique<BertCleanNormalizer>(options));
  if (options.strip_accents) {
    parts.push_back(NormalizeUnicode(UnicodeForm::kNfd));
    parts.push_back(std::make_unique<StripNonspacingNormalizer>());
  }
  if (options.lower_case) parts.push_back(LowerCase());
  return NormalizerSequence(std::move(parts));
}

}  // namespace polysil

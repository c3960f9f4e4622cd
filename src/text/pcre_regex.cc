#include "text/pcre_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "polysil/base/check.h"
#include "text/utf8.h"

namespace polysil {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytesMin = 32 * 1024;
constexpr size_t kJitStackBytesMax = 4 * 1024 * 1024;

// White_Space; PCRE2's own \s also takes U+180E.
constexpr std::string_view kWhiteSpaceItems =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// As WordCharacters(); PCRE2's own \w takes all numbers and no marks.
constexpr std::string_view kWordItems =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
    R"(\x{1f170}-\x{1f189})";

// An escape in PCRE2's dialect.
std::string TranslateEscape(char escaped, bool in_class) {
  const std::string space(kWhiteSpaceItems);
  const std::string word(kWordItems);
  if (in_class) {
    if (escaped == 's') return space;
    if (escaped == 'w') return word;
    return {'\\', escaped};
  }
  switch (escaped) {
    case 's':
      return "[" + space + "]";
    case 'S':
      return "[^" + space + "]";
    case 'w':
      return "[" + word + "]";
    case 'W':
      return "[^" + word + "]";
    case 'b':
      return fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word);
    case 'B':
      return fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word);
    case 'h':
      return "[0-9A-Fa-f]";
    default:
      return {'\\', escaped};
  }
}

// From the dialect of tokenizer files to PCRE2's.
std::string Translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      out += TranslateEscape(pattern[++i], in_class);
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (c == '[' && pattern.substr(i).starts_with("[:")) {  // [[:alpha:]]
      const size_t close = pattern.find(":]", i);
      if (close != std::string_view::npos) {
        out += pattern.substr(i, close + 2 - i);
        i = close + 1;
        continue;
      }
    }
    if (c == ']' && in_class) in_class = false;
    out += c;
  }
  return out;
}

std::string ErrorText(int code) {
  std::string text(256, '\0');
  const int length =
      pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<PcreRegex>> PcreRegex::Compile(std::string_view pattern) {
  const std::string translated = Translate(pattern);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &error_offset, nullptr);
  if (code == nullptr) {
    return InvalidArgument("regular expression: {} at byte {}", ErrorText(error), error_offset);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, matching is slower, not wrong
  std::unique_ptr<PcreRegex> regex(new PcreRegex());
  regex->code_ = code;
  return regex;
}

PcreRegex::~PcreRegex() {
  pcre2_code_free(static_cast<pcre2_code*>(code_));
}

PcreSearch::PcreSearch(const PcreRegex& regex, std::string_view text) : regex_(regex), text_(text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (!c.well_formed) {
      if (cleaned_.empty()) cleaned_ = text;
      for (uint32_t i = 0; i < c.bytes; ++i) cleaned_[at + i] = '\x1A';  // keeps every offset
    }
    at += c.bytes;
  }
  if (!cleaned_.empty()) text_ = cleaned_;
  const auto* code = static_cast<const pcre2_code*>(regex.code_);
  auto* const data = pcre2_match_data_create_from_pattern(code, nullptr);
  auto* const context = pcre2_match_context_create(nullptr);
  auto* const stack = pcre2_jit_stack_create(kJitStackBytesMin, kJitStackBytesMax, nullptr);
  match_data_ = data;
  match_context_ = context;
  jit_stack_ = stack;
  CHECK(data != nullptr && context != nullptr, "out of memory");
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_heap_limit(context, kHeapLimitKib);
  pcre2_jit_stack_assign(context, nullptr, stack);
}

PcreSearch::~PcreSearch() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(match_context_));
  pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(jit_stack_));
}

std::optional<std::pair<size_t, size_t>> PcreSearch::Next() {
  while (at_ <= text_.size()) {
    auto* const data = static_cast<pcre2_match_data*>(match_data_);
    const int result =
        pcre2_match(static_cast<const pcre2_code*>(regex_.code_),
                    reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at_,
                    PCRE2_NO_UTF_CHECK, data, static_cast<pcre2_match_context*>(match_context_));
    if (result < 0) break;
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(data);
    const size_t begin = range[0];
    const size_t end = range[1];
    if (end < begin) break;  // \K in a look-ahead
    at_ = end;
    if (end == begin && end == last_end_) {
      at_ += end < text_.size() ? DecodeUtf8(text_.substr(end)).bytes : 1;
      continue;
    }
    last_end_ = end;
    return std::pair(begin, end);
  }
  at_ = text_.size() + 1;
  return std::nullopt;
}

}  // namespace polysil

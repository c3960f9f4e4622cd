#include "text/jinja/lexer.h"

#include <algorithm>
#include <cstdio>

#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsHexDigit(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

std::string NormalizeNewlines(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      result.push_back('\n');
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      result.push_back(text[i]);
    }
  }
  return result;
}

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = DecodeAt(text, at);
    if (!IsSpace(c.value)) break;
    at += c.bytes;
  }
  return at;
}

std::string_view StripRight(std::string_view text) {
  const std::string_view stripped = StripSpace(text);
  return stripped.empty()
             ? std::string_view()
             : text.substr(0, static_cast<size_t>(stripped.data() - text.data()) + stripped.size());
}

// The escapes of a Python string literal. Returns an empty string or the error.
class Unescaper final {
 public:
  explicit Unescaper(std::string_view body) : body_(body) {}

  std::string Run(std::string* out) {
    while (at_ < body_.size()) {
      const char c = body_[at_++];
      if (c != '\\') {
        out->push_back(c);
      } else if (std::string error = Escape(out); !error.empty()) {
        return error;
      }
    }
    return {};
  }

 private:
  std::string Escape(std::string* out) {
    if (at_ >= body_.size()) return "\\ at end of string";
    const CodePoint c = DecodeAt(body_, at_);
    at_ += c.bytes;
    switch (c.value) {
      case '\n':
        return {};
      case 'a':
        out->push_back('\a');
        return {};
      case 'b':
        out->push_back('\b');
        return {};
      case 'f':
        out->push_back('\f');
        return {};
      case 'n':
        out->push_back('\n');
        return {};
      case 'r':
        out->push_back('\r');
        return {};
      case 't':
        out->push_back('\t');
        return {};
      case 'v':
        out->push_back('\v');
        return {};
      case '\\':
      case '\'':
      case '"':
        out->push_back(static_cast<char>(c.value));
        return {};
      case 'x':
        return Hex(2, "truncated \\xXX escape", out);
      case 'u':
        return Hex(4, "truncated \\uXXXX escape", out);
      case 'U':
        return Hex(8, "truncated \\UXXXXXXXX escape", out);
      case 'N':
        return "character names (\\N) are not supported";
      default:
        break;
    }
    if (c.value >= '0' && c.value <= '7') {
      uint32_t value = c.value - '0';
      for (int i = 0; i < 2 && at_ < body_.size() && body_[at_] >= '0' && body_[at_] <= '7'; ++i) {
        value = value * 8 + static_cast<uint32_t>(body_[at_++] - '0');
      }
      AppendUtf8(out, value);
      return {};
    }
    // An unknown escape stays as it is. Python's own detour through ASCII shows in what a backslash
    // before a non-ASCII character gives: the character's escape, spelled out.
    out->push_back('\\');
    if (c.value < 0x80) {
      out->push_back(static_cast<char>(c.value));
    } else {
      char buffer[16];
      const char* format = c.value < 0x100 ? "x%02x" : c.value < 0x10000 ? "u%04x" : "U%08x";
      std::snprintf(buffer, sizeof(buffer), format, c.value);
      out->append(buffer);
    }
    return {};
  }

  std::string Hex(size_t digits, const char* error, std::string* out) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      if (at_ >= body_.size() || !IsHexDigit(body_[at_])) return error;
      const char c = body_[at_++];
      value = value * 16 + static_cast<uint32_t>(IsDigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > 0x10FFFF) return "illegal Unicode character";
    // Two halves of a pair stay two characters in Python, which cannot be printed; here they meet.
    if (value >= 0xD800 && value < 0xDC00 && body_.substr(at_, 2) == "\\u") {
      const size_t back = at_;
      at_ += 2;
      std::string low;
      uint32_t half = 0;
      bool valid = at_ + 4 <= body_.size();
      for (size_t i = 0; valid && i < 4; ++i) {
        const char c = body_[at_ + i];
        valid = IsHexDigit(c);
        half = half * 16 + static_cast<uint32_t>(IsDigit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      }
      if (valid && half >= 0xDC00 && half < 0xE000) {
        at_ += 4;
        value = 0x10000 + ((value - 0xD800) << 10) + (half - 0xDC00);
      } else {
        at_ = back;
      }
    }
    AppendUtf8(out, value);
    return {};
  }

  std::string_view body_;
  size_t at_ = 0;
};

class Lexer final {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {
    // keep_trailing_newline is off.
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<Token> Run() {
    while (!failed_ && at_ < source_.size()) LexRoot();
    if (!failed_) Add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void Fail(std::string message) {
    Add(TokenKind::kError, std::move(message));
    failed_ = true;
  }
  void AdvanceTo(size_t end) {
    line_ += static_cast<int32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                             source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    line_starting_ = end > at_ ? source_[end - 1] == '\n' : line_starting_;
    at_ = end;
  }
  bool StartsWith(std::string_view text, size_t at) const {
    return source_.compare(at, text.size(), text) == 0;
  }

  // The data before a tag, with the whitespace that the tag removes taken off.
  void AddData(size_t end, char sign, bool is_variable) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const std::string_view rest = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && !rest.empty() && StripSpace(rest).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }

  void LexRoot() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        Add(TokenKind::kData, source_.substr(at_));
        AdvanceTo(source_.size());
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    size_t after = tag + 2;
    const char sign = after < source_.size() && (source_[after] == '-' || source_[after] == '+')
                          ? source_[after]
                          : '\0';
    if (sign != '\0') ++after;
    const char type = source_[tag + 1];
    AddData(tag, sign, type == '{');
    AdvanceTo(after);
    if (type == '#') {
      LexComment();
    } else if (type == '%' && LexRawBegin()) {
      LexRaw();
    } else {
      Add(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, {});
      LexTag(type == '{');
    }
  }

  void LexComment() {
    if (at_ >= source_.size()) return;
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return Fail("Missing end of comment tag");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    AdvanceTo(EndOfTag(end + 2, sign));
  }

  // Where a tag that closes before `at` ends, with the whitespace it removes.
  size_t EndOfTag(size_t at, char sign) const {
    if (sign == '-') return SkipSpace(source_, at);
    if (sign != '+' && at < source_.size() && source_[at] == '\n') return at + 1;
    return at;
  }

  bool LexRawBegin() {
    size_t at = SkipSpace(source_, at_);
    if (!StartsWith("raw", at)) return false;
    at = SkipSpace(source_, at + 3);
    const bool strip = StartsWith("-%}", at);
    if (!strip && !StartsWith("%}", at)) return false;
    at += strip ? 3 : 2;
    AdvanceTo(strip ? SkipSpace(source_, at) : at);
    return true;
  }

  void LexRaw() {
    if (at_ >= source_.size()) return;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      size_t at = tag + 2;
      const char sign = at < source_.size() ? source_[at] : '\0';
      if (sign == '-' || sign == '+') ++at;
      at = SkipSpace(source_, at);
      if (!StartsWith("endraw", at)) continue;
      at = SkipSpace(source_, at + 6);
      const char end_sign = at < source_.size() ? source_[at] : '\0';
      if (end_sign == '-' || end_sign == '+') ++at;
      if (!StartsWith("%}", at)) continue;
      AddData(tag, sign, false);
      AdvanceTo(EndOfTag(at + 2, end_sign));
      return;
    }
    Fail("Missing end of raw directive");
  }

  void LexTag(bool is_variable) {
    std::string open;  // the brackets that wait to be closed
    while (!failed_) {
      if (open.empty() && LexTagEnd(is_variable)) return;
      if (at_ >= source_.size()) return;
      const CodePoint c = DecodeAt(source_, at_);
      if (IsSpace(c.value)) {
        AdvanceTo(SkipSpace(source_, at_));
      } else if (IsDigit(source_[at_])) {
        LexNumber();
      } else if (IsIdentifierStart(c.value)) {
        size_t end = at_ + c.bytes;
        while (end < source_.size()) {
          const CodePoint part = DecodeAt(source_, end);
          if (!IsIdentifierPart(part.value)) break;
          end += part.bytes;
        }
        Add(TokenKind::kName, source_.substr(at_, end - at_));
        AdvanceTo(end);
      } else if (source_[at_] == '\'' || source_[at_] == '"') {
        LexString();
      } else {
        LexOperator(&open);
      }
    }
  }

  bool LexTagEnd(bool is_variable) {
    const std::string_view close = is_variable ? "}}" : "%}";
    char sign = at_ < source_.size() ? source_[at_] : '\0';
    if (sign != '-' && (sign != '+' || is_variable)) sign = '\0';
    const size_t at = at_ + (sign == '\0' ? 0 : 1);
    if (at > source_.size() || !StartsWith(close, at)) return false;
    Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, {});
    // trim_blocks removes a newline after a block, never after a variable.
    AdvanceTo(is_variable && sign != '-' ? at + 2 : EndOfTag(at + 2, sign));
    return true;
  }

  // [0-9] with single underscores between digits.
  size_t DigitsEnd(size_t at) const {
    size_t end = at;
    while (end < source_.size()) {
      const bool separates =
          source_[end] == '_' && end > at && end + 1 < source_.size() && IsDigit(source_[end + 1]);
      if (!IsDigit(source_[end]) && !separates) break;
      ++end;
    }
    return end;
  }

  void LexNumber() {
    size_t end = FloatEnd();
    const bool is_float = end != 0;
    if (!is_float) end = IntegerEnd();
    std::string text;
    for (const char c : source_.substr(at_, end - at_)) {
      if (c != '_') text.push_back(c);
    }
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    AdvanceTo(end);
  }

  // 0 where the number is not a float.
  size_t FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return 0;
    size_t end = DigitsEnd(at_);
    bool fraction = false;
    if (end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
      end = DigitsEnd(end + 1);
      fraction = true;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (exponent < source_.size() && IsDigit(source_[exponent])) return DigitsEnd(exponent);
    }
    return fraction ? end : 0;
  }

  size_t IntegerEnd() const {
    if (source_[at_] != '0') return DigitsEnd(at_);
    const char mark = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    const auto is_digit = [mark](char c) {
      return mark == 'x'   ? IsHexDigit(c)
             : mark == 'o' ? c >= '0' && c <= '7'
                           : c == '0' || c == '1';
    };
    if (mark == 'x' || mark == 'o' || mark == 'b') {
      size_t end = at_ + 2;
      while (end < source_.size()) {
        const size_t digit = source_[end] == '_' ? end + 1 : end;
        if (digit >= source_.size() || !is_digit(source_[digit])) break;
        end = digit + 1;
      }
      if (end > at_ + 2) return end;
    }
    size_t end = at_ + 1;
    while (end < source_.size()) {
      const size_t digit = source_[end] == '_' ? end + 1 : end;
      if (digit >= source_.size() || source_[digit] != '0') break;
      end = digit + 1;
    }
    return end;
  }

  void LexString() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return FailAtCharacter();
    std::string text;
    Unescaper unescaper(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (std::string error = unescaper.Run(&text); !error.empty()) return Fail(std::move(error));
    Add(TokenKind::kString, std::move(text));
    AdvanceTo(end + 1);
  }

  void FailAtCharacter() {
    const CodePoint c = DecodeAt(source_, at_);
    const std::string shown = source_.substr(at_, c.bytes);
    const std::string quote = shown == "'" ? "\"" : "'";
    Fail("unexpected char " + quote + shown + quote + " at " +
         std::to_string(CountCodePoints(std::string_view(source_).substr(0, at_))));
  }

  void LexOperator(std::string* open) {
    static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view two : kDouble) {
      if (StartsWith(two, at_)) {
        Add(TokenKind::kOperator, std::string(two));
        return AdvanceTo(at_ + 2);
      }
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      return FailAtCharacter();
    }
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) return Fail(std::string("unexpected '") + c + "'");
      const char expected = open->back();
      open->pop_back();
      if (c != expected) {
        return Fail(std::string("unexpected '") + c + "', expected '" + expected + "'");
      }
    }
    Add(TokenKind::kOperator, std::string(1, c));
    AdvanceTo(at_ + 1);
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool line_starting_ = true;
  bool failed_ = false;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).Run();
}

}  // namespace polysil::jinja

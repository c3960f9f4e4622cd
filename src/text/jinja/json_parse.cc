// json.loads: Python's reading of JSON, which keeps integers of any size, lets the last of equal
// keys win, and knows NaN and Infinity.
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

// Deep enough for any schema, and far from the end of the stack.
constexpr int kJsonDepthMax = 200;

class JsonParser final {
 public:
  JsonParser(Runtime& runtime, std::string_view text, bool untrusted)
      : runtime_(runtime), text_(text), untrusted_(untrusted) {}

  bool Parse(Value* result) {
    SkipSpace();
    if (!ParseValue(result)) return false;
    SkipSpace();
    return at_ == text_.size() || Malformed("Extra data");
  }

 private:
  bool Malformed(std::string_view what) {
    return runtime_.Fail(std::string(what) + ": byte " + std::to_string(at_) + " of the JSON text");
  }
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool Skip(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool ParseValue(Value* result) {
    if (!runtime_.Step() || !runtime_.Room(0)) return false;
    if (at_ >= text_.size()) return Malformed("Expecting value");
    switch (text_[at_]) {
      case '{':
        return ParseObject(result);
      case '[':
        return ParseArray(result);
      case '"':
        return ParseString(result);
      default:
        break;
    }
    if (Skip("null")) {
      *result = Value::None();
    } else if (Skip("true")) {
      *result = Value::Bool(true, untrusted_);
    } else if (Skip("false")) {
      *result = Value::Bool(false, untrusted_);
    } else if (Skip("NaN")) {
      *result = Value::Float(*ParseFloat("nan"), untrusted_);
    } else if (Skip("Infinity")) {
      *result = Value::Float(*ParseFloat("inf"), untrusted_);
    } else if (Skip("-Infinity")) {
      *result = Value::Float(*ParseFloat("-inf"), untrusted_);
    } else {
      return ParseNumber(result);
    }
    return true;
  }

  size_t SkipDigits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - begin;
  }

  bool ParseNumber(Value* result) {
    const size_t begin = at_;
    const bool negative = Skip("-");
    const size_t digits_begin = at_;
    // A zero stands alone.
    const size_t digits = Skip("0") ? 1 : SkipDigits();
    if (digits == 0) {
      at_ = begin;
      return Malformed("Expecting value");
    }
    bool is_float = false;
    size_t end = at_;
    if (Skip(".")) {
      if (SkipDigits() > 0) {
        is_float = true;
        end = at_;
      }
      at_ = end;
    }
    if (Skip("e") || Skip("E")) {
      if (!Skip("+")) Skip("-");
      if (SkipDigits() > 0) {
        is_float = true;
        end = at_;
      }
      at_ = end;
    }
    if (is_float) {
      *result = Value::Float(*ParseFloat(text_.substr(begin, end - begin)), untrusted_);
      return true;
    }
    if (digits > 4300) return Malformed("Exceeds the limit (4300 digits) for integer conversion");
    *result = ParseDecimal(runtime_.heap(), text_.substr(digits_begin, digits), negative);
    result->set_tainted(untrusted_);
    return true;
  }

  bool ParseUnit(uint32_t* unit) {
    *unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Malformed("Invalid \\uXXXX escape");
      *unit = *unit * 16 + static_cast<uint32_t>(digit);
    }
    return true;
  }

  bool ParseEscape(std::string* out) {
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    static constexpr std::string_view kFrom = "\"\\/bfnrt";
    static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const size_t which = kFrom.find(c); c != '\0' && which != std::string_view::npos) {
      out->push_back(kTo[which]);
      return true;
    }
    if (c != 'u') return Malformed("Invalid \\escape");
    uint32_t unit = 0;
    if (!ParseUnit(&unit)) return false;
    if (unit >= 0xD800 && unit < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      const size_t back = at_;
      at_ += 2;
      uint32_t low = 0;
      if (!ParseUnit(&low)) return false;
      if (low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
      } else {
        at_ = back;
      }
    }
    AppendUtf8(out, unit);  // half a pair becomes U+FFFD
    return true;
  }

  bool ParseString(Value* result) {
    ++at_;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) return Malformed("Unterminated string");
      const char c = text_[at_++];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) return Malformed("Invalid control character");
      if (c != '\\') {
        out.push_back(c);
      } else if (!ParseEscape(&out)) {
        return false;
      }
    }
    *result = runtime_.NewString(Text(std::move(out), untrusted_));
    return true;
  }

  bool ParseArray(Value* result) {
    if (++depth_ > kJsonDepthMax) return Malformed("nested too deeply");
    ++at_;
    *result = runtime_.NewList();
    std::vector<Value>& items = result->as<List>().items;
    SkipSpace();
    if (!Skip("]")) {
      while (true) {
        SkipSpace();
        if (!ParseValue(&items.emplace_back())) return false;
        SkipSpace();
        if (Skip("]")) break;
        if (!Skip(",")) return Malformed("Expecting ',' delimiter");
      }
    }
    --depth_;
    return runtime_.Recharge(*result);
  }

  bool ParseObject(Value* result) {
    if (++depth_ > kJsonDepthMax) return Malformed("nested too deeply");
    ++at_;
    *result = runtime_.NewDict();
    auto& dict = result->as<Dict>();
    SkipSpace();
    if (!Skip("}")) {
      while (true) {
        SkipSpace();
        Value key;
        Value value;
        if (at_ >= text_.size() || text_[at_] != '"') {
          return Malformed("Expecting property name enclosed in double quotes");
        }
        if (!ParseString(&key)) return false;
        SkipSpace();
        if (!Skip(":")) return Malformed("Expecting ':' delimiter");
        SkipSpace();
        if (!ParseValue(&value)) return false;
        dict.Set(std::move(key), std::move(value));
        SkipSpace();
        if (Skip("}")) break;
        if (!Skip(",")) return Malformed("Expecting ',' delimiter");
      }
    }
    --depth_;
    return runtime_.Recharge(*result);
  }

  Runtime& runtime_;
  std::string_view text_;
  const bool untrusted_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

bool ParseJson(Runtime& runtime, std::string_view text, bool untrusted, Value* result) {
  return JsonParser(runtime, text, untrusted).Parse(result);
}

}  // namespace polysil::jinja

#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

// Of the digits after the point: more than any double has is of no use.
constexpr int64_t kPrecisionMax = 400;

// Thousands separators into the digits before the point.
std::string Group(const std::string& digits, char separator, size_t every) {
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) grouped.push_back(separator);
    grouped.push_back(digits[i]);
  }
  return grouped;
}

std::string FloatDigits(double magnitude, char type, int precision, bool alternate) {
  if (!std::isfinite(magnitude)) {
    std::string word = std::isnan(magnitude) ? "nan" : "inf";
    if (type != 'E' && type != 'F' && type != 'G') return word;
    return word == "nan" ? "NAN" : "INF";
  }
  char format[8] = {'%', '.', '*', type, '\0'};
  if (alternate) {
    format[1] = '#';
    format[2] = '.';
    format[3] = '*';
    format[4] = type;
    format[5] = '\0';
  }
  char buffer[800];  // 309 digits, the point, kPrecisionMax digits
  const int length = std::snprintf(buffer, sizeof(buffer), format, precision, magnitude);
  return std::string(buffer, static_cast<size_t>(std::max(0, length)));
}

bool IsFloatType(char type) {
  return type != '\0' && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}

// The digits of a number without its sign.
bool NumberDigits(Runtime& runtime, const Value& number, const FormatSpec& spec,
                  std::string* prefix, std::string* digits) {
  const bool is_float = number.is(Kind::kFloat);
  if (is_float || IsFloatType(spec.type)) {
    if (!IsFloatType(spec.type) && spec.type != '\0' && spec.type != 'n') {
      return runtime.Fail(std::string("Unknown format code '") + spec.type +
                          "' for object of type 'float'");
    }
    if (spec.precision > kPrecisionMax) return runtime.Fail("precision too big");
    double magnitude = std::fabs(ToDouble(number));
    if (spec.type == '\0' && spec.precision < 0) {
      *digits = FormatFloat(magnitude);
      return true;
    }
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    if (spec.type == '%') {
      *digits = FloatDigits(magnitude * 100, 'f', precision, spec.alternate) + "%";
    } else {
      const char type = spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
      *digits = FloatDigits(magnitude, type, precision, spec.alternate);
      if (spec.type == '\0' && digits->find_first_not_of("0123456789") == std::string::npos) {
        *digits += ".0";
      }
    }
    return true;
  }
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      *digits = FormatInt(number);
      if (digits->starts_with('-')) digits->erase(0, 1);
      return true;
    case 'b':
    case 'o':
    case 'x':
    case 'X':
      *digits = FormatMagnitude(number, spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : 16);
      if (spec.alternate) *prefix = std::string("0") + spec.type;
      if (spec.type == 'X') {
        std::transform(digits->begin(), digits->end(), digits->begin(),
                       [](char c) { return static_cast<char>(c >= 'a' && c <= 'f' ? c - 32 : c); });
      }
      return true;
    default:
      return runtime.Fail(std::string("Unknown format code '") + spec.type +
                          "' for object of type 'int'");
  }
}

}  // namespace

bool Pad(Runtime& runtime, const Text& text, const FormatSpec& spec, char align_default,
         Text* out) {
  const auto length = static_cast<int64_t>(CountCodePoints(text.view()));
  const size_t room = spec.width > length ? static_cast<size_t>(spec.width - length) : 0;
  size_t bytes = 0;
  if (__builtin_mul_overflow(room, spec.fill.size(), &bytes)) bytes = SIZE_MAX / 2;
  if (!runtime.Reserve(bytes) || !runtime.StepScan(text.size()) || !runtime.Room(out->size())) {
    return false;
  }
  const char align = spec.align == '\0' ? align_default : spec.align;
  // str.center() puts the odd one left where the width is odd; the ^ of a format never does.
  const size_t odd = align == 'c' ? room & static_cast<size_t>(spec.width) & 1 : 0;
  const size_t left = align == '>' ? room : align == '<' ? 0 : room / 2 + odd;
  for (size_t i = 0; i < left; ++i) out->Append(spec.fill);
  out->Append(text);
  for (size_t i = left; i < room; ++i) out->Append(spec.fill);
  return true;
}

bool FormatNumber(Runtime& runtime, const Value& number, const FormatSpec& spec, Text* out) {
  if (spec.type == 'c') {
    const std::optional<int64_t> code = ToInt64(number);
    if (!code || *code < 0 || *code > 0x10FFFF) {
      return runtime.Fail("%c arg not in range(0x110000)");
    }
    std::string character;
    AppendUtf8(&character, static_cast<uint32_t>(*code));
    return Pad(runtime, Text(std::move(character), number.tainted()), spec, '<', out);
  }
  std::string prefix;
  std::string digits;
  if (!NumberDigits(runtime, number, spec, &prefix, &digits)) return false;
  const bool negative =
      number.is(Kind::kFloat) ? std::signbit(number.float_value()) : IsNegative(number);
  std::string sign = negative                               ? "-"
                     : spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign)
                                                            : "";
  if (spec.grouping != '\0') {
    const size_t whole =
        std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
    const bool by_four =
        spec.type == 'b' || spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
    digits = Group(digits.substr(0, whole), spec.grouping, by_four ? 4 : 3) + digits.substr(whole);
  }
  const bool inside = spec.align == '=' || (spec.zero && spec.align == '\0');
  Text text;
  if (inside) {
    const auto used = static_cast<int64_t>(sign.size() + prefix.size() + digits.size());
    const size_t room = spec.width > used ? static_cast<size_t>(spec.width - used) : 0;
    if (!runtime.Reserve(room * std::max<size_t>(1, spec.fill.size()))) return false;
    text.Append(sign + prefix, number.tainted());
    for (size_t i = 0; i < room; ++i) {
      if (spec.zero && spec.align == '\0') {
        text.Append("0", false);
      } else {
        text.Append(spec.fill);
      }
    }
    text.Append(digits, number.tainted());
  } else {
    text.Append(sign + prefix + digits, number.tainted());
  }
  return Pad(runtime, text, spec, '>', out);
}

namespace {

// One `format % arguments`.
class PercentFormatter final {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& arguments)
      : runtime_(runtime),
        format_(format.as<String>().text),
        markup_(format.as<String>().markup),
        arguments_(arguments) {}

  bool Run(Value* result) {
    const std::string_view bytes = format_.view();
    if (!runtime_.Reserve(bytes.size())) return false;
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t percent = bytes.find('%', at);
      const size_t end = percent == std::string_view::npos ? bytes.size() : percent;
      out_.Append(format_, at, end);
      if (end == bytes.size()) break;
      at = end + 1;
      if (!Convert(bytes, &at)) return false;
    }
    const bool mapping = arguments_.is_dict() || arguments_.is_list();
    if (!mapping && next_ < Count()) {
      return runtime_.Fail("not all arguments converted during string formatting");
    }
    *result = runtime_.NewString(std::move(out_), markup_);
    return runtime_.Room(0);
  }

 private:
  size_t Count() const {
    return arguments_.is(Kind::kTuple) ? arguments_.as<List>().items.size() : 1;
  }
  bool Next(Value* value) {
    if (next_ >= Count()) return runtime_.Fail("not enough arguments for format string");
    *value = arguments_.is(Kind::kTuple) ? arguments_.as<List>().items[next_] : arguments_;
    ++next_;
    return true;
  }
  bool ReadNumber(std::string_view bytes, size_t* at, int64_t* number) {
    if (*at < bytes.size() && bytes[*at] == '*') {
      ++*at;
      Value value;
      if (!Next(&value)) return false;
      const std::optional<int64_t> given = ToInt64(value);
      if (!given) return runtime_.Fail("* wants int");
      *number = *given;
      return true;
    }
    *number = 0;
    for (; *at < bytes.size() && bytes[*at] >= '0' && bytes[*at] <= '9'; ++*at) {
      *number = std::min<int64_t>(*number * 10 + (bytes[*at] - '0'), int64_t{1} << 40);
    }
    return true;
  }

  bool Convert(std::string_view bytes, size_t* at) {
    Value value;
    bool named = false;
    FormatSpec spec;
    if (*at < bytes.size() && bytes[*at] == '(') {
      const size_t close = bytes.find(')', *at);
      if (close == std::string_view::npos) return runtime_.Fail("incomplete format key");
      if (!arguments_.is_dict()) return runtime_.Fail("format requires a mapping");
      const Value* found = arguments_.as<Dict>().Find(bytes.substr(*at + 1, close - *at - 1));
      if (found == nullptr) {
        return runtime_.Fail("'" + std::string(bytes.substr(*at + 1, close - *at - 1)) + "'");
      }
      value = *found;
      named = true;
      *at = close + 1;
    }
    for (; *at < bytes.size(); ++*at) {
      const char c = bytes[*at];
      if (c == '-')
        spec.align = '<';
      else if (c == '+' || (c == ' ' && spec.sign != '+'))
        spec.sign = c;
      else if (c == '0')
        spec.zero = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c != ' ')
        break;
    }
    if (!ReadNumber(bytes, at, &spec.width)) return false;
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (*at < bytes.size() && bytes[*at] == '.') {
      ++*at;
      if (!ReadNumber(bytes, at, &spec.precision)) return false;
      spec.precision = std::max<int64_t>(0, spec.precision);
    }
    while (*at < bytes.size() && (bytes[*at] == 'l' || bytes[*at] == 'h' || bytes[*at] == 'L'))
      ++*at;
    if (*at >= bytes.size()) return runtime_.Fail("incomplete format");
    spec.type = bytes[(*at)++];
    if (spec.type == '%') {
      out_.Append("%", false);
      return true;
    }
    if (!named && !Next(&value)) return false;
    return ConvertValue(value, spec, *at - 1);
  }

  bool ConvertValue(const Value& value, FormatSpec spec, size_t position) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return ConvertText(value, spec);
      case 'c':
        if (value.is_string()) {
          if (CountCodePoints(value.as<String>().bytes()) != 1) {
            return runtime_.Fail("%c requires int or char");
          }
          return ConvertText(value, spec);
        }
        if (!value.is_integer()) return runtime_.Fail("%c requires int or char");
        return FormatNumber(runtime_, value, spec, &out_);
      case 'd':
      case 'i':
      case 'u': {
        if (!value.is_number()) return NotANumber(value, spec.type, "a real number");
        spec.type = 'd';
        // %5.3d: at least three digits, which a width gives as well where there is no other.
        if (spec.precision > spec.width) {
          spec.width = spec.precision;
          spec.zero = true;
        }
        if (!value.is(Kind::kFloat)) return FormatNumber(runtime_, value, spec, &out_);
        if (!std::isfinite(value.float_value())) {
          return runtime_.Fail("cannot convert float infinity or NaN to integer");
        }
        Value whole = IntFromDouble(runtime_.heap(), value.float_value());
        whole.set_tainted(value.tainted());
        return FormatNumber(runtime_, whole, spec, &out_);
      }
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integer()) return NotANumber(value, spec.type, "an integer");
        return FormatNumber(runtime_, value, spec, &out_);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) {
          if (value.is_undefined()) return runtime_.FailUndefined(value);
          return runtime_.Fail("must be real number, not " + TypeName(value));
        }
        return FormatNumber(runtime_, value, spec, &out_);
      default:
        return runtime_.Fail(std::string("unsupported format character '") + spec.type +
                             "' at index " + std::to_string(position));
    }
  }

  bool NotANumber(const Value& value, char type, std::string_view what) {
    if (value.is_undefined()) return runtime_.FailUndefined(value);
    return runtime_.Fail(std::string("%") + type + " format: " + std::string(what) +
                         " is required, not " + TypeName(value));
  }

  bool ConvertText(const Value& value, const FormatSpec& spec) {
    Text text;
    const bool repr = spec.type == 'r' || spec.type == 'a';
    if (!(repr ? AppendRepr(runtime_, value, &text) : AppendStr(runtime_, value, &text))) {
      return false;
    }
    if (markup_) {
      const Value plain = repr ? runtime_.NewString(std::move(text)) : value;
      text = Text();
      if (!AppendEscaped(runtime_, plain, &text)) return false;
    }
    if (spec.precision >= 0) {
      text = text.Slice(0, OffsetOf(text.view(), static_cast<size_t>(spec.precision)));
    }
    return Pad(runtime_, text, spec, '>', &out_);
  }

  Runtime& runtime_;
  const Text& format_;
  const bool markup_;
  const Value& arguments_;
  size_t next_ = 0;
  Text out_;
};

}  // namespace

bool FormatPercent(Runtime& runtime, const Value& format, const Value& arguments, Value* result) {
  return PercentFormatter(runtime, format, arguments).Run(result);
}

}  // namespace polysil::jinja

// str.format.
#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

bool IsAlign(uint32_t c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

class BraceFormatter final {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool markup)
      : runtime_(runtime), arguments_(arguments), markup_(markup) {}

  // `level`: 0 for the format itself, 1 for a specification with fields of its own.
  bool Expand(const Text& format, int level, Text* out) {
    const std::string_view bytes = format.view();
    if (!runtime_.Reserve(bytes.size())) return false;
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out->Append(format, at, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out->Append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') return runtime_.Fail("Single '}' encountered in format string");
      const size_t end = FieldEnd(bytes, brace + 1);
      if (end == std::string_view::npos) return runtime_.Fail("expected '}' before end of string");
      if (!Field(format.Slice(brace + 1, end), level, out)) return false;
      at = end + 1;
    }
    return true;
  }

 private:
  static size_t FieldEnd(std::string_view bytes, size_t at) {
    int depth = 1;
    bool bracket = false;
    for (; at < bytes.size(); ++at) {
      if (bracket) {
        bracket = bytes[at] != ']';
      } else if (bytes[at] == '[') {
        bracket = true;
      } else if (bytes[at] == '{') {
        ++depth;
      } else if (bytes[at] == '}' && --depth == 0) {
        return at;
      }
    }
    return std::string_view::npos;
  }

  bool Field(const Text& field, int level, Text* out) {
    if (level > 1) return runtime_.Fail("Max string recursion exceeded");
    const std::string_view bytes = field.view();
    size_t name_end = 0;
    bool bracket = false;
    for (; name_end < bytes.size(); ++name_end) {
      const char c = bytes[name_end];
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      if (!bracket && (c == '!' || c == ':')) break;
    }
    Value value;
    if (!Resolve(bytes.substr(0, name_end), &value)) return false;
    size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      if (!ConvertValue(conversion, &value)) return false;
      at += 2;
      if (at < bytes.size() && bytes[at] != ':') {
        return runtime_.Fail("expected ':' after conversion specifier");
      }
    }
    Text spec;
    if (at < bytes.size() && !Expand(field.Slice(at + 1, bytes.size()), level + 1, &spec)) {
      return false;
    }
    return Format(value, spec, out);
  }

  bool ConvertValue(char conversion, Value* value) {
    Text text;
    if (conversion == 's') {
      if (!AppendStr(runtime_, *value, &text)) return false;
    } else if (conversion == 'r' || conversion == 'a') {
      if (!AppendRepr(runtime_, *value, &text)) return false;
    } else {
      return runtime_.Fail(std::string("Unknown conversion specifier ") + conversion);
    }
    *value = runtime_.NewString(std::move(text));
    return true;
  }

  // name(.attribute | [key])*
  bool Resolve(std::string_view path, Value* value) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    if (!First(path.substr(0, at), value)) return false;
    while (at < path.size()) {
      Value next;
      if (path[at] == '.') {
        const size_t end = std::min(path.find_first_of(".[", at + 1), path.size());
        const Value name = runtime_.NewString(path.substr(at + 1, end - at - 1));
        if (!GetAttribute(runtime_, *value, name, &next)) return false;
        at = end;
      } else {
        const size_t end = path.find(']', at);
        if (end == std::string_view::npos) return runtime_.Fail("Missing ']' in format string");
        const std::string_view key = path.substr(at + 1, end - at - 1);
        const bool number = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        const Value index = number ? ParseDecimal(runtime_.heap(), key.substr(0, 19), false)
                                   : runtime_.NewString(key);
        if (!GetItem(runtime_, *value, index, &next)) return false;
        at = end + 1;
      }
      *value = std::move(next);
    }
    return true;
  }

  bool First(std::string_view name, Value* value) {
    const bool number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (!number) {
      const Value* found = arguments_.Keyword(name);
      if (found == nullptr) return runtime_.Fail("'" + std::string(name) + "'");
      *value = *found;
      return true;
    }
    const bool is_automatic = name.empty();
    if (numbering_ != Numbering::kNone && is_automatic != (numbering_ == Numbering::kAutomatic)) {
      return runtime_.Fail("cannot switch between manual and automatic field numbering");
    }
    numbering_ = is_automatic ? Numbering::kAutomatic : Numbering::kManual;
    size_t index = 0;
    if (is_automatic) {
      index = automatic_++;
    } else {
      for (const char c : name.substr(0, 9)) index = index * 10 + static_cast<size_t>(c - '0');
    }
    if (index >= arguments_.positional.size()) {
      return runtime_.Fail("Replacement index " + std::to_string(index) +
                           " out of range for positional args tuple");
    }
    *value = arguments_.positional[index];
    return true;
  }

  static FormatSpec Parse(const Text& text, std::string_view* rest) {
    FormatSpec spec;
    std::string_view bytes = text.view();
    const auto take = [&bytes](char wanted) {
      const bool has = !bytes.empty() && bytes[0] == wanted;
      if (has) bytes.remove_prefix(1);
      return has;
    };
    if (!bytes.empty()) {
      const size_t fill = DecodeAt(bytes, 0).bytes;
      if (fill < bytes.size() && IsAlign(static_cast<unsigned char>(bytes[fill]))) {
        spec.fill = text.Slice(0, fill);
        spec.align = bytes[fill];
        bytes.remove_prefix(fill + 1);
      } else if (IsAlign(static_cast<unsigned char>(bytes[0]))) {
        spec.align = bytes[0];
        bytes.remove_prefix(1);
      }
    }
    for (const char sign : {'+', '-', ' '}) {
      if (take(sign)) spec.sign = sign;
    }
    spec.alternate = take('#');
    spec.zero = take('0');
    const auto number = [&bytes] {
      int64_t value = 0;
      for (; !bytes.empty() && bytes[0] >= '0' && bytes[0] <= '9'; bytes.remove_prefix(1)) {
        value = std::min<int64_t>(value * 10 + (bytes[0] - '0'), int64_t{1} << 40);
      }
      return value;
    };
    spec.width = number();
    if (take(',')) spec.grouping = ',';
    if (take('_')) spec.grouping = '_';
    if (take('.')) spec.precision = number();
    if (!bytes.empty()) {
      spec.type = bytes[0];
      bytes.remove_prefix(1);
    }
    *rest = bytes;
    return spec;
  }

  bool Format(const Value& value, const Text& spec_text, Text* out) {
    if (spec_text.empty()) {
      return markup_ ? AppendEscaped(runtime_, value, out) : AppendStr(runtime_, value, out);
    }
    std::string_view rest;
    FormatSpec spec = Parse(spec_text, &rest);
    if (!rest.empty()) return runtime_.Fail("Invalid format specifier");
    if (value.is_number()) {
      if (value.is(Kind::kFloat) || spec.type != 's') {
        return FormatNumber(runtime_, value, spec, out);
      }
      return runtime_.Fail("Unknown format code 's' for object of type 'int'");
    }
    if (!value.is_string()) {
      return runtime_.Fail("unsupported format string passed to " + TypeName(value) +
                           ".__format__");
    }
    if (spec.type != '\0' && spec.type != 's') {
      return runtime_.Fail(std::string("Unknown format code '") + spec.type +
                           "' for object of type 'str'");
    }
    if (spec.align == '=') {
      return runtime_.Fail("'=' alignment not allowed in string format specifier");
    }
    if (spec.zero && spec.align == '\0') spec.fill = Text::Trusted("0");
    Text text;
    if (markup_) {
      if (!AppendEscaped(runtime_, value, &text)) return false;
    } else {
      text = value.as<String>().text;
    }
    if (spec.precision >= 0) {
      text = text.Slice(0, OffsetOf(text.view(), static_cast<size_t>(spec.precision)));
    }
    return Pad(runtime_, text, spec, '<', out);
  }

  enum class Numbering : uint8_t { kNone, kAutomatic, kManual };

  Runtime& runtime_;
  const Arguments& arguments_;
  const bool markup_;
  Numbering numbering_ = Numbering::kNone;
  size_t automatic_ = 0;
};

}  // namespace

bool FormatBraces(Runtime& runtime, const Value& format, const Arguments& arguments,
                  Value* result) {
  const auto& string = format.as<String>();
  Text out;
  if (!BraceFormatter(runtime, arguments, string.markup).Expand(string.text, 0, &out)) {
    return false;
  }
  *result = runtime.NewString(std::move(out), string.markup);
  return runtime.Room(0);
}

}  // namespace polysil::jinja

// str(), repr() and HTML escaping.
#include <cstdio>

#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

// Calls `append(bytes, untrusted)` for each run of equal marks.
template <typename Append>
void ForEachRun(const Text& text, Append append) {
  for (size_t at = 0; at < text.size();) {
    bool untrusted = false;
    const size_t end = text.RunEnd(at, &untrusted);
    append(text.view().substr(at, end - at), untrusted);
    at = end;
  }
}

void AppendReprEscape(std::string* out, uint32_t c, char quote) {
  char buffer[16];
  if (c == static_cast<unsigned char>(quote) || c == '\\') {
    out->push_back('\\');
    out->push_back(static_cast<char>(c));
  } else if (c == '\n') {
    out->append("\\n");
  } else if (c == '\r') {
    out->append("\\r");
  } else if (c == '\t') {
    out->append("\\t");
  } else if (IsPrintable(c)) {
    AppendUtf8(out, c);
  } else {
    const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(buffer, sizeof(buffer), format, c > 0x10FFFF ? c & 0xFF : c);
    out->append(buffer);
  }
}

void AppendQuoted(const Text& text, Text* out) {
  const bool single = text.bytes().find('\'') != std::string::npos;
  const char quote = single && text.bytes().find('"') == std::string::npos ? '"' : '\'';
  out->Append(std::string_view(&quote, 1), false);
  ForEachRun(text, [out, quote](std::string_view run, bool untrusted) {
    std::string escaped;
    for (size_t at = 0; at < run.size();) {
      const CodePoint c = DecodeAt(run, at);
      AppendReprEscape(&escaped, c.value, quote);
      at += c.bytes;
    }
    out->Append(escaped, untrusted);
  });
  out->Append(std::string_view(&quote, 1), false);
}

void AppendBytesRepr(const Text& text, Text* out) {
  out->Append("b'", false);
  std::string escaped;
  for (const char c : text.bytes()) {
    const auto byte = static_cast<unsigned char>(c);
    char buffer[8];
    if (byte == '\'' || byte == '\\') {
      escaped += {'\\', c};
    } else if (byte >= 0x20 && byte < 0x7F) {
      escaped.push_back(c);
    } else if (byte == '\n' || byte == '\r' || byte == '\t') {
      escaped += byte == '\n' ? "\\n" : byte == '\r' ? "\\r" : "\\t";
    } else {
      std::snprintf(buffer, sizeof(buffer), "\\x%02x", byte);
      escaped += buffer;
    }
  }
  out->Append(escaped, text.any_untrusted());
  out->Append("'", false);
}

bool AppendItems(Runtime& runtime, const std::vector<Value>& items, Text* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    if (!AppendRepr(runtime, items[i], out)) return false;
  }
  return true;
}

bool AppendDict(Runtime& runtime, const Dict& dict, Text* out) {
  out->Append("{", false);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    if (!AppendRepr(runtime, dict.entries[i].first, out)) return false;
    out->Append(": ", false);
    if (!AppendRepr(runtime, dict.entries[i].second, out)) return false;
  }
  out->Append("}", false);
  return true;
}

bool AppendContainer(Runtime& runtime, const Value& value, Text* out) {
  const DepthGuard guard(runtime);
  if (!guard.ok()) return false;
  switch (value.kind()) {
    case Kind::kDict:
      return AppendDict(runtime, value.as<Dict>(), out);
    case Kind::kNamespace:
      out->Append("<Namespace ", false);
      if (!AppendDict(runtime, value.as<Dict>(), out)) return false;
      out->Append(">", false);
      return true;
    case Kind::kTuple: {
      const std::vector<Value>& items = value.as<List>().items;
      out->Append("(", false);
      if (!AppendItems(runtime, items, out)) return false;
      out->Append(items.size() == 1 ? ",)" : ")", false);
      return true;
    }
    default: {
      const bool view = value.is(Kind::kDictView);
      if (view) out->Append(value.as<List>().type_name, false);
      out->Append(view ? "([" : "[", false);
      if (!AppendItems(runtime, value.as<List>().items, out)) return false;
      out->Append(view ? "])" : "]", false);
      return true;
    }
  }
}

std::string RangeText(const Range& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  return text + ")";
}

}  // namespace

bool AppendRepr(Runtime& runtime, const Value& value, Text* out) {
  if (!runtime.Step() || !runtime.Room(out->size())) return false;
  switch (value.kind()) {
    case Kind::kUndefined:
      out->Append("Undefined", false);
      return true;
    case Kind::kNone:
      out->Append("None", false);
      return true;
    case Kind::kBool:
      out->Append(value.bool_value() ? "True" : "False", value.tainted());
      return true;
    case Kind::kInt:
    case Kind::kBigInt:
      out->Append(FormatInt(value), value.tainted());
      return true;
    case Kind::kFloat:
      out->Append(FormatFloat(value.float_value()), value.tainted());
      return true;
    case Kind::kString: {
      const auto& string = value.as<String>();
      if (!runtime.StepScan(string.text.size())) return false;
      if (string.markup) out->Append("Markup(", false);
      AppendQuoted(string.text, out);
      if (string.markup) out->Append(")", false);
      return true;
    }
    case Kind::kBytes:
      AppendBytesRepr(value.as<Bytes>().text, out);
      return true;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kNamespace:
      return AppendContainer(runtime, value, out);
    case Kind::kRange:
      out->Append(RangeText(value.as<Range>()), false);
      return true;
    case Kind::kGenerator:
      out->Append("<" + std::string(value.as<List>().type_name) + " object>", false);
      return true;
    case Kind::kLoop:
    case Kind::kCallable:
      out->Append(value.as<Callable>().Describe(), false);
      return true;
    case Kind::kScope:
      return true;
  }
  return true;
}

bool AppendStr(Runtime& runtime, const Value& value, Text* out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      if (!runtime.Reserve(value.as<String>().text.size()) || !runtime.Room(out->size())) {
        return false;
      }
      out->Append(value.as<String>().text);
      return true;
    default:
      return AppendRepr(runtime, value, out);
  }
}

bool ToString(Runtime& runtime, const Value& value, Value* result) {
  if (value.is_string()) {
    *result = value;
    return true;
  }
  Text text;
  if (!AppendStr(runtime, value, &text)) return false;
  *result = runtime.NewString(std::move(text));
  return true;
}

std::string ReprForMessage(const Value& value) {
  Text text;
  switch (value.kind()) {
    case Kind::kString: {
      constexpr size_t kShownMax = 80;
      const Text& whole = value.as<String>().text;
      AppendQuoted(whole.size() > kShownMax ? whole.Slice(0, kShownMax) : whole, &text);
      return text.bytes();
    }
    case Kind::kInt:
    case Kind::kBigInt:
      return FormatInt(value);
    case Kind::kFloat:
      return FormatFloat(value.float_value());
    case Kind::kBool:
      return value.bool_value() ? "True" : "False";
    case Kind::kNone:
      return "None";
    default:
      return TypeName(value);
  }
}

bool AppendEscaped(Runtime& runtime, const Value& value, Text* out) {
  if (value.is_string() && value.as<String>().markup) return AppendStr(runtime, value, out);
  Text plain;
  if (!AppendStr(runtime, value, &plain)) return false;
  ForEachRun(plain, [out](std::string_view run, bool untrusted) {
    std::string escaped;
    for (const char c : run) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        default:
          escaped.push_back(c);
      }
    }
    out->Append(escaped, untrusted);
  });
  return runtime.StepScan(plain.size());
}

}  // namespace polysil::jinja

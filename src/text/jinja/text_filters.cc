// Filters that give text.
#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

const Text& TextOf(const Value& value) {
  return value.as<String>().text;
}

// The filters that are a method of soft_str(input).
template <size_t kLength>
struct Name {
  constexpr Name(const char (&text)[kLength]) { std::copy_n(text, kLength, value); }  // NOLINT
  char value[kLength];
};
template <Name kMethod>
bool AsMethod(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  Value string;
  return ToString(runtime, input, &string) &&
         FindMethod(Kind::kString, kMethod.value)->function(runtime, string, arguments, result);
}

// trim(chars), center(width): a method whose parameter has a name.
template <Name kMethod, Name kParameter>
bool AsMethodWith(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, kMethod.value, arguments);
  const Value* parameter = reader.Optional(kParameter.value);
  if (!reader.Done()) return false;
  Arguments positional;
  if (parameter != nullptr) {
    positional.positional.push_back(*parameter);
  } else if (std::string_view(kParameter.value) == "width") {
    positional.positional.push_back(Value::Int(80));
  }
  return AsMethod<kMethod>(runtime, input, positional, result);
}

bool TitleFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  Value string;
  if (!ArgumentReader(runtime, "title", arguments).Done() || !ToString(runtime, input, &string) ||
      !runtime.Reserve(3 * TextOf(string).size()) || !runtime.StepScan(TextOf(string).size())) {
    return false;
  }
  const Text& text = TextOf(string);
  const auto separates = [](uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
  };
  Text out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint first = DecodeAt(text.view(), at);
    size_t end = at + first.bytes;
    const bool separator = separates(first.value);
    while (end < text.size()) {
      const CodePoint c = DecodeAt(text.view(), end);
      if (separates(c.value) != separator) break;
      end += c.bytes;
    }
    // Runs of separators go through the same change, which leaves them as they are.
    out.Append(Upper(text.Slice(at, at + first.bytes)));
    out.Append(Lower(text.Slice(at + first.bytes, end)));
    at = end;
  }
  *result = runtime.NewString(std::move(out));
  return true;
}

bool ReplaceFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                   Value* result) {
  ArgumentReader reader(runtime, "replace", arguments);
  const Value* old = reader.Required("old");
  const Value* replacement = reader.Required("new");
  const Value* count = reader.Optional("count");
  if (!reader.Done()) return false;
  Text text;
  Text old_text;
  Text new_text;
  if (!AppendStr(runtime, input, &text) || !AppendStr(runtime, *old, &old_text) ||
      !AppendStr(runtime, *replacement, &new_text)) {
    return false;
  }
  const int64_t times = count == nullptr || count->is_none() ? -1 : ToInt64(*count).value_or(-1);
  if (!runtime.StepScan(text.size()) ||
      !runtime.Reserve(ReplaceSize(text, old_text.view(), new_text.size(), times))) {
    return false;
  }
  *result = runtime.NewString(Replace(text, old_text.view(), new_text, times));
  return true;
}

bool StringFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  return ArgumentReader(runtime, "string", arguments).Done() && ToString(runtime, input, result);
}

bool SafeFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  Text text;
  if (!ArgumentReader(runtime, "safe", arguments).Done() || !AppendStr(runtime, input, &text)) {
    return false;
  }
  *result = runtime.NewString(std::move(text), !runtime.serving());
  return true;
}

template <bool kForce>
bool EscapeFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  Text text;
  if (!ArgumentReader(runtime, "escape", arguments).Done()) return false;
  // forceescape takes the markup's text, which is escaped once more.
  Value value = input;
  if (kForce && input.is_string()) value = runtime.NewString(TextOf(input));
  if (!AppendEscaped(runtime, value, &text)) return false;
  *result = runtime.NewString(std::move(text), !runtime.serving());
  return true;
}

bool IndentFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "indent", arguments);
  const Value* width = reader.Optional("width");
  const bool first = reader.OptionalBool("first", false);
  const bool blank = reader.OptionalBool("blank", false);
  if (!reader.Done()) return false;
  if (!input.is_string()) {
    if (input.is_undefined()) return runtime.FailUndefined(input);
    return runtime.Fail("unsupported operand type(s) for +=: '" + TypeName(input) + "' and 'str'");
  }
  Text indent = Text::Trusted("    ");
  if (width != nullptr && width->is_string()) {
    indent = TextOf(*width);
  } else if (width != nullptr) {
    const std::optional<int64_t> spaces = ToInt64(*width);
    if (!spaces) {
      return runtime.Fail("can't multiply sequence by non-int of type '" + TypeName(*width) + "'");
    }
    const auto count = static_cast<size_t>(std::max<int64_t>(0, *spaces));
    if (!runtime.Reserve(count)) return false;
    indent = Text::Trusted(std::string(count, ' '));
  }
  Text text = TextOf(input);
  if (!runtime.Reserve(2 * text.size()) || !runtime.StepScan(text.size())) return false;
  text.Append("\n", false);
  const std::vector<Text> lines = SplitLines(text, false);
  size_t bytes = 0;
  if (__builtin_mul_overflow(lines.size(), indent.size() + sizeof(Text), &bytes)) {
    bytes = SIZE_MAX / 2;
  }
  if (!runtime.Reserve(bytes)) return false;
  Text out;
  if (first) out.Append(indent);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out.Append("\n", false);
      if (blank || !lines[i].empty()) out.Append(indent);
    }
    out.Append(lines[i]);
  }
  *result = runtime.NewString(std::move(out), input.as<String>().markup);
  return true;
}

bool FormatFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    return runtime.Fail("can't handle positional and keyword arguments at the same time");
  }
  Value string;
  if (!ToString(runtime, input, &string)) return false;
  Value values;
  if (!arguments.keyword.empty()) {
    values = runtime.NewDict();
    for (const auto& [name, value] : arguments.keyword) values.as<Dict>().Set(name, value);
  } else {
    values = runtime.NewList(Kind::kTuple);
    values.as<List>().items = arguments.positional;
  }
  return FormatPercent(runtime, string, values, result);
}

bool TruncateFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                    Value* result) {
  ArgumentReader reader(runtime, "truncate", arguments);
  const int64_t length = reader.OptionalInt("length", 255);
  const bool kill_words = reader.OptionalBool("killwords", false);
  const Value* end = reader.Optional("end");
  const Value* leeway_given = reader.Optional("leeway");
  if (!reader.Done()) return false;
  Text end_text = Text::Trusted("...");
  if (end != nullptr) {
    end_text = Text();
    if (!AppendStr(runtime, *end, &end_text)) return false;
  }
  const int64_t leeway =
      leeway_given == nullptr || leeway_given->is_none() ? 5 : ToInt64(*leeway_given).value_or(5);
  const auto end_length = static_cast<int64_t>(CountCodePoints(end_text.view()));
  if (length < end_length || leeway < 0) {
    return runtime.Fail("expected length >= " + std::to_string(end_length) + ", got " +
                        std::to_string(length));
  }
  if (input.is_string() && !runtime.Reserve(2 * input.as<String>().text.size() + end_text.size())) {
    return false;
  }
  std::string error;
  const std::optional<int64_t> have = Length(input, &error);
  if (!have) return runtime.Fail(std::move(error));
  // Written so that no sum can overflow.
  if (*have <= leeway || *have - leeway <= length) {
    *result = input;
    return true;
  }
  if (!input.is_string()) {
    return runtime.Fail("can only concatenate " + TypeName(input) + " (not \"str\") to " +
                        TypeName(input));
  }
  const Text& text = TextOf(input);
  Text out = text.Slice(0, OffsetOf(text.view(), static_cast<size_t>(length - end_length)));
  if (!kill_words) out = SplitFromRight(out, " ", 1)[0];
  out.Append(end_text);
  *result = runtime.NewString(std::move(out));
  return true;
}

// Removes what lies between `open` and the next `close`, again and again.
Text RemoveBetween(const Text& text, std::string_view open, std::string_view close) {
  Text out;
  size_t at = 0;
  while (true) {
    const size_t start = FindBytes(text.view(), open, at);
    if (start == std::string_view::npos) break;
    const size_t end = FindBytes(text.view(), close, start);
    if (end == std::string_view::npos) break;
    out.Append(text, at, start);
    at = end + close.size();
  }
  out.Append(text, at, text.size());
  return out;
}

bool StripTagsFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                     Value* result) {
  Text text;
  if (!ArgumentReader(runtime, "striptags", arguments).Done() ||
      !AppendStr(runtime, input, &text) || !runtime.Reserve(64 * text.size()) ||
      !runtime.StepScan(text.size())) {
    return false;
  }
  text = RemoveBetween(RemoveBetween(text, "<!--", "-->"), "<", ">");
  Text out;
  for (const Text& word : SplitSpace(text, -1)) {
    if (!out.empty()) out.Append(" ", false);
    out.Append(word);
  }
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},    {"&gt;", ">"},  {"&#34;", "\""},
      {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  for (const auto& [entity, character] : kEntities) {
    const Text plain(std::string(character), out.any_untrusted());
    out = Replace(out, entity, plain, -1);
  }
  *result = runtime.NewString(std::move(out));
  return true;
}

std::string UrlQuote(std::string_view text, bool for_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out.push_back(c);
    } else if (c == ' ' && for_query) {
      out.push_back('+');
    } else {
      constexpr char kHex[] = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

bool UrlEncodeFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                     Value* result) {
  if (!ArgumentReader(runtime, "urlencode", arguments).Done()) return false;
  const auto quote = [&runtime](const Value& value, bool for_query, Text* out) {
    Text text;
    if (!AppendStr(runtime, value, &text) || !runtime.StepScan(text.size())) return false;
    out->Append(UrlQuote(text.view(), for_query), text.any_untrusted());
    return true;
  };
  Text out;
  if (input.is_string() || !IsIterable(input)) {
    if (!quote(input, false, &out)) return false;
    *result = runtime.NewString(std::move(out));
    return true;
  }
  Value pairs = input;
  if (input.is_dict() &&
      !FindMethod(Kind::kDict, "items")->function(runtime, input, Arguments(), &pairs)) {
    return false;
  }
  Iteration iteration;
  Value item;
  if (!iteration.Start(runtime, pairs)) return false;
  while (iteration.Next(runtime, &item)) {
    std::vector<Value> pair;
    if (!Collect(runtime, item, &pair)) return false;
    if (pair.size() != 2) return runtime.Fail("urlencode needs pairs of key and value");
    if (!out.empty()) out.Append("&", false);
    if (!quote(pair[0], true, &out)) return false;
    out.Append("=", false);
    if (!quote(pair[1], true, &out)) return false;
  }
  if (runtime.failed()) return false;
  *result = runtime.NewString(std::move(out));
  return true;
}

bool XmlAttrFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                   Value* result) {
  ArgumentReader reader(runtime, "xmlattr", arguments);
  const bool space = reader.OptionalBool("autospace", true);
  if (!reader.Done()) return false;
  if (!input.is_dict()) return runtime.Fail("xmlattr needs a mapping");
  Text out;
  for (const auto& [key, value] : input.as<Dict>().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string() ||
        TextOf(key).bytes().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return runtime.Fail("Invalid character in attribute name: " + ReprForMessage(key));
    }
    if (space || !out.empty()) out.Append(" ", false);
    if (!AppendEscaped(runtime, key, &out)) return false;
    out.Append("=\"", false);
    if (!AppendEscaped(runtime, value, &out)) return false;
    out.Append("\"", false);
  }
  *result = runtime.NewString(std::move(out));
  return true;
}

bool ReadIndent(Runtime& runtime, const Value& value, JsonFormat* format) {
  if (value.is_none()) return true;
  if (value.is_string()) {
    format->indent = TextOf(value);
  } else {
    const std::optional<int64_t> spaces = ToInt64(value);
    if (!spaces) {
      return runtime.Fail("can't multiply sequence by non-int of type '" + TypeName(value) + "'");
    }
    const auto count = static_cast<size_t>(std::max<int64_t>(0, *spaces));
    if (!runtime.Reserve(count)) return false;
    format->indent = Text::Trusted(std::string(count, ' '));
  }
  format->item_separator = Text::Trusted(",");
  return true;
}

bool ToJsonFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "tojson", arguments);
  JsonFormat format;
  format.ensure_ascii = reader.OptionalBool("ensure_ascii", false);
  const Value* indent = reader.Optional("indent");
  const Value* separators = reader.Optional("separators");
  format.sort_keys = reader.OptionalBool("sort_keys", false);
  format.generators = runtime.serving();
  if (!reader.Done() || (indent != nullptr && !ReadIndent(runtime, *indent, &format))) return false;
  if (separators != nullptr && !separators->is_none()) {
    std::vector<Value> pair;
    if (!Collect(runtime, *separators, &pair)) return false;
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return runtime.Fail("separators must be a pair of strings");
    }
    format.item_separator = TextOf(pair[0]);
    format.key_separator = TextOf(pair[1]);
  }
  Text out;
  if (!AppendJson(runtime, input, format, &out)) return false;
  *result = runtime.NewString(std::move(out));
  return true;
}

bool FromJsonFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                    Value* result) {
  if (!ArgumentReader(runtime, "from_json", arguments).Done()) return false;
  if (!input.is_string()) {
    return runtime.Fail("the JSON object must be str, not " + TypeName(input));
  }
  return ParseJson(runtime, TextOf(input).view(), TextOf(input).any_untrusted(), result);
}

bool PprintFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  Text text;
  if (!ArgumentReader(runtime, "pprint", arguments).Done() || !AppendRepr(runtime, input, &text)) {
    return false;
  }
  *result = runtime.NewString(std::move(text));
  return true;
}

constexpr Filter kFilters[] = {
    {"capitalize", AsMethod<"capitalize">},
    {"center", AsMethodWith<"center", "width">},
    {"e", EscapeFilter<false>},
    {"escape", EscapeFilter<false>},
    {"forceescape", EscapeFilter<true>},
    {"format", FormatFilter},
    {"from_json", FromJsonFilter, true},
    {"fromjson", FromJsonFilter, true},
    {"indent", IndentFilter},
    {"lower", AsMethod<"lower">},
    {"pprint", PprintFilter},
    {"replace", ReplaceFilter},
    {"safe", SafeFilter},
    {"string", StringFilter},
    {"striptags", StripTagsFilter},
    {"title", TitleFilter},
    {"tojson", ToJsonFilter},
    {"trim", AsMethodWith<"strip", "chars">},
    {"truncate", TruncateFilter},
    {"upper", AsMethod<"upper">},
    {"urlencode", UrlEncodeFilter},
    {"xmlattr", XmlAttrFilter},
};

}  // namespace

std::span<const Filter> TextFilters() {
  return kFilters;
}

}  // namespace polysil::jinja

// The methods of str (and of the bytes that encode() gives).
// Over 500 lines: one short function for each of the methods of str, and their table.
#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/functions.h"
#include "text/jinja/operations.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

const Text& TextOf(const Value& value) {
  return value.as<String>().text;
}

// A string of the same sort as `self`: markup stays markup.
Value Like(Runtime& runtime, const Value& self, Text text) {
  return runtime.NewString(std::move(text), self.as<String>().markup);
}

bool NoArguments(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  return ArgumentReader(runtime, name, arguments).Done();
}

bool ExpectString(Runtime& runtime, const Value& value, std::string_view what) {
  if (value.is_string()) return true;
  if (value.is_undefined()) return runtime.FailUndefined(value);
  return runtime.Fail(std::string(what) + " must be str, not " + TypeName(value));
}

template <Text (*kMap)(const Text&)>
bool MapText(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  // Upper case may be three times as long.
  if (!NoArguments(runtime, "str method", arguments) || !runtime.Reserve(3 * TextOf(self).size()) ||
      !runtime.StepScan(TextOf(self).size())) {
    return false;
  }
  *result = Like(runtime, self, kMap(TextOf(self)));
  return true;
}

template <bool kLeft, bool kRight>
bool StripMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "strip", arguments);
  const Value* characters = reader.Optional({});
  if (!reader.Done() || !runtime.StepScan(TextOf(self).size())) return false;
  std::optional<std::string_view> set;
  if (characters != nullptr && !characters->is_none()) {
    if (!ExpectString(runtime, *characters, "strip arg")) return false;
    set = TextOf(*characters).view();
    if (!runtime.Reserve(set->size() * sizeof(uint32_t))) return false;
  }
  *result = Like(runtime, self, Strip(TextOf(self), set, kLeft, kRight));
  return true;
}

Value ListOfTexts(Runtime& runtime, const Value& self, std::vector<Text> parts, Kind kind) {
  Value list = runtime.NewList(kind);
  std::vector<Value>& items = list.as<List>().items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(Like(runtime, self, std::move(part)));
  return list;
}

// Each part is a string of its own, which may be a hundred times the bytes of the text.
bool ReserveParts(Runtime& runtime, size_t parts) {
  return runtime.Reserve(parts *
                         (sizeof(String) + sizeof(Text) + sizeof(Value) + sizeof(ByteSpan)));
}

template <bool kFromRight>
bool SplitMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, kFromRight ? "rsplit" : "split", arguments);
  const Value* separator = reader.Optional("sep");
  const int64_t splits_max = reader.OptionalInt("maxsplit", -1);
  if (!reader.Done() || !runtime.StepScan(TextOf(self).size())) return false;
  const Text& text = TextOf(self);
  std::vector<Text> parts;
  if (separator == nullptr || separator->is_none()) {
    if (!ReserveParts(runtime, text.size() / 2 + 1)) return false;
    parts = kFromRight ? SplitSpaceFromRight(text, splits_max) : SplitSpace(text, splits_max);
  } else {
    if (!ExpectString(runtime, *separator, "separator")) return false;
    const std::string_view bytes = TextOf(*separator).view();
    if (bytes.empty()) return runtime.Fail("empty separator");
    if (!ReserveParts(runtime, CountOccurrences(text.view(), bytes) + 1)) return false;
    parts = kFromRight ? SplitFromRight(text, bytes, splits_max) : Split(text, bytes, splits_max);
  }
  *result = ListOfTexts(runtime, self, std::move(parts), Kind::kList);
  return runtime.Recharge(*result);
}

bool SplitLinesMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                      Value* result) {
  ArgumentReader reader(runtime, "splitlines", arguments);
  const bool keep_ends = reader.OptionalBool("keepends", false);
  const std::string& bytes = TextOf(self).bytes();
  const auto breaks = static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
  if (!reader.Done() || !runtime.StepScan(bytes.size()) || !ReserveParts(runtime, breaks + 1)) {
    return false;
  }
  *result = ListOfTexts(runtime, self, SplitLines(TextOf(self), keep_ends), Kind::kList);
  return runtime.Recharge(*result);
}

template <bool kFromRight>
bool PartitionMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                     Value* result) {
  ArgumentReader reader(runtime, "partition", arguments);
  const Value* separator = reader.Required({});
  if (!reader.Done() || !ExpectString(runtime, *separator, "separator") ||
      !runtime.StepScan(TextOf(self).size())) {
    return false;
  }
  const Text& text = TextOf(self);
  const Text& part = TextOf(*separator);
  if (part.empty()) return runtime.Fail("empty separator");
  const size_t at =
      kFromRight ? FindLastBytes(text.view(), part.view()) : FindBytes(text.view(), part.view());
  std::vector<Text> parts(3);
  if (at == std::string_view::npos) {
    parts[kFromRight ? 2 : 0] = text;
  } else {
    parts[0] = text.Slice(0, at);
    parts[1] = text.Slice(at, at + part.size());
    parts[2] = text.Slice(at + part.size(), text.size());
  }
  *result = ListOfTexts(runtime, self, std::move(parts), Kind::kTuple);
  return true;
}

// The part of the text between the optional code point bounds that find(), count() and the like
// take.
bool ReadBounds(Runtime& runtime, ArgumentReader& reader, std::string_view text, size_t* begin,
                size_t* end) {
  const Value* start = reader.Optional({});
  const Value* stop = reader.Optional({});
  if (!reader.Done()) return false;
  *begin = 0;
  *end = text.size();
  if (start == nullptr && stop == nullptr) return true;
  if (!runtime.StepScan(text.size())) return false;
  const auto length = static_cast<int64_t>(CountCodePoints(text));
  const auto resolve = [&](const Value* value, int64_t otherwise) {
    if (value == nullptr || value->is_none()) return otherwise;
    int64_t index = ToInt64(*value).value_or(otherwise);
    if (index < 0) index = std::max<int64_t>(0, index + length);
    return index;
  };
  const int64_t first = resolve(start, 0);
  const int64_t last = std::min(length, resolve(stop, length));
  if (first > last) {  // beyond the end: nothing is found there, not even an empty string
    *begin = std::string_view::npos;
    return true;
  }
  *begin = OffsetOf(text, static_cast<size_t>(first));
  *end = OffsetOf(text, static_cast<size_t>(last));
  return true;
}

template <bool kFromRight, bool kMustExist>
bool FindMethodOfStr(Runtime& runtime, const Value& self, const Arguments& arguments,
                     Value* result) {
  ArgumentReader reader(runtime, "find", arguments);
  const Value* part = reader.Required({});
  const std::string_view text = TextOf(self).view();
  size_t begin = 0;
  size_t end = 0;
  if (!ReadBounds(runtime, reader, text, &begin, &end)) return false;
  if (!ExpectString(runtime, *part, "argument") || !runtime.StepScan(text.size())) return false;
  size_t at = std::string_view::npos;
  if (begin != std::string_view::npos) {
    const std::string_view window = text.substr(0, end);
    at = kFromRight ? FindLastBytes(window.substr(begin), TextOf(*part).view())
                    : FindBytes(window, TextOf(*part).view(), begin);
    if (kFromRight && at != std::string_view::npos) at += begin;
  }
  if (at == std::string_view::npos && kMustExist) return runtime.Fail("substring not found");
  *result = Value::Int(
      at == std::string_view::npos ? -1 : static_cast<int64_t>(CountCodePoints(text.substr(0, at))),
      TextOf(self).any_untrusted());
  return true;
}

bool CountMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "count", arguments);
  const Value* part = reader.Required({});
  const std::string_view text = TextOf(self).view();
  size_t begin = 0;
  size_t end = 0;
  if (!ReadBounds(runtime, reader, text, &begin, &end)) return false;
  if (!ExpectString(runtime, *part, "argument") || !runtime.StepScan(text.size())) return false;
  const size_t count =
      begin == std::string_view::npos
          ? 0
          : CountOccurrences(text.substr(begin, end - begin), TextOf(*part).view());
  *result = Value::Int(static_cast<int64_t>(count), TextOf(self).any_untrusted());
  return true;
}

template <bool kAtEnd>
bool StartsWithMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                      Value* result) {
  ArgumentReader reader(runtime, kAtEnd ? "endswith" : "startswith", arguments);
  const Value* part = reader.Required({});
  const std::string_view text = TextOf(self).view();
  size_t begin = 0;
  size_t end = 0;
  if (!ReadBounds(runtime, reader, text, &begin, &end)) return false;
  const auto matches = [&](const Value& candidate) {
    if (begin == std::string_view::npos) return false;
    const std::string_view window = text.substr(begin, end - begin);
    const std::string_view bytes = TextOf(candidate).view();
    return kAtEnd ? window.ends_with(bytes) : window.starts_with(bytes);
  };
  bool holds = false;
  if (part->is(Kind::kTuple)) {
    for (const Value& candidate : part->as<List>().items) {
      if (!runtime.Step() || !ExpectString(runtime, candidate, "tuple for startswith"))
        return false;
      holds = holds || matches(candidate);
    }
  } else {
    if (!part->is_string()) {
      if (part->is_undefined()) return runtime.FailUndefined(*part);
      return runtime.Fail(std::string(kAtEnd ? "endswith" : "startswith") +
                          " first arg must be str or a tuple of str, not " + TypeName(*part));
    }
    holds = matches(*part);
  }
  *result = Value::Bool(holds);
  return true;
}

bool ReplaceMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "replace", arguments);
  const Value* old = reader.Required({});
  const Value* replacement = reader.Required({});
  const int64_t count = reader.OptionalInt("count", -1);
  if (!reader.Done() || !ExpectString(runtime, *old, "replace() argument 1") ||
      !ExpectString(runtime, *replacement, "replace() argument 2")) {
    return false;
  }
  Text escaped;
  const bool markup = self.as<String>().markup;
  if (markup && !AppendEscaped(runtime, *replacement, &escaped)) return false;
  const Text& text = markup ? escaped : TextOf(*replacement);
  const std::string_view bytes = TextOf(*old).view();
  if (!runtime.StepScan(TextOf(self).size()) ||
      !runtime.Reserve(ReplaceSize(TextOf(self), bytes, text.size(), count))) {
    return false;
  }
  *result = Like(runtime, self, Replace(TextOf(self), bytes, text, count));
  return true;
}

bool JoinMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "join", arguments);
  const Value* iterable = reader.Required({});
  if (!reader.Done()) return false;
  if (!IsIterable(*iterable)) return runtime.Fail("can only join an iterable");
  const bool markup = self.as<String>().markup;
  Text text;
  Iteration iteration;
  if (!iteration.Start(runtime, *iterable)) return false;
  Value item;
  for (int64_t i = 0; iteration.Next(runtime, &item); ++i) {
    if (!markup && !item.is_string()) {
      return runtime.Fail("sequence item " + std::to_string(i) + ": expected str instance, " +
                          TypeName(item) + " found");
    }
    if (i > 0) {
      if (!runtime.Reserve(TextOf(self).size())) return false;
      text.Append(TextOf(self));
    }
    if (!(markup ? AppendEscaped(runtime, item, &text) : AppendStr(runtime, item, &text))) {
      return false;
    }
  }
  if (runtime.failed()) return false;
  *result = Like(runtime, self, std::move(text));
  return true;
}

template <char kAlign>
bool PadMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "str method", arguments);
  FormatSpec spec;
  spec.width = reader.RequiredInt({});
  const Value* fill = reader.Optional({});
  if (!reader.Done()) return false;
  if (fill != nullptr) {
    if (!ExpectString(runtime, *fill, "the fill character")) return false;
    spec.fill = TextOf(*fill);
    if (CountCodePoints(spec.fill.view()) != 1) {
      return runtime.Fail("The fill character must be exactly one character long");
    }
  }
  spec.align = kAlign;
  Text text;
  if (!Pad(runtime, TextOf(self), spec, kAlign, &text)) return false;
  *result = Like(runtime, self, std::move(text));
  return true;
}

bool ZfillMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "zfill", arguments);
  const int64_t width = reader.RequiredInt({});
  if (!reader.Done()) return false;
  const Text& text = TextOf(self);
  const auto length = static_cast<int64_t>(CountCodePoints(text.view()));
  const size_t zeros = width > length ? static_cast<size_t>(width - length) : 0;
  if (!runtime.Reserve(zeros + text.size())) return false;
  const size_t sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
  Text padded = text.Slice(0, sign);
  padded.Append(std::string(zeros, '0'), false);
  padded.Append(text, sign, text.size());
  *result = Like(runtime, self, std::move(padded));
  return true;
}

bool ExpandTabsMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                      Value* result) {
  ArgumentReader reader(runtime, "expandtabs", arguments);
  const int64_t size = reader.OptionalInt("tabsize", 8);
  if (!reader.Done()) return false;
  const Text& text = TextOf(self);
  Text out;
  int64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text.view(), at);
    if (c.value == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      if (!runtime.Reserve(static_cast<size_t>(spaces)) || !runtime.Room(out.size())) return false;
      out.Append(std::string(static_cast<size_t>(spaces), ' '), false);
      column += spaces;
    } else {
      out.Append(text, at, at + c.bytes);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    at += c.bytes;
  }
  *result = Like(runtime, self, std::move(out));
  return runtime.StepScan(text.size());
}

template <bool kSuffix>
bool RemoveAffixMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                       Value* result) {
  ArgumentReader reader(runtime, kSuffix ? "removesuffix" : "removeprefix", arguments);
  const Value* affix = reader.Required({});
  if (!reader.Done() || !ExpectString(runtime, *affix, "argument")) return false;
  const Text& text = TextOf(self);
  const std::string_view bytes = TextOf(*affix).view();
  if (!runtime.Reserve(text.size())) return false;
  const bool has = kSuffix ? text.view().ends_with(bytes) : text.view().starts_with(bytes);
  const size_t cut = has ? bytes.size() : 0;
  *result = Like(runtime, self,
                 kSuffix ? text.Slice(0, text.size() - cut) : text.Slice(cut, text.size()));
  return true;
}

template <bool (*kIs)(uint32_t)>
bool AllMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  const std::string_view text = TextOf(self).view();
  if (!NoArguments(runtime, "str method", arguments) || !runtime.StepScan(text.size()))
    return false;
  bool all = !text.empty() || kIs == &IsPrintable;
  for (size_t at = 0; all && at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    all = kIs(c.value);
    at += c.bytes;
  }
  *result = Value::Bool(all);
  return true;
}

bool IsAlphanumeric(uint32_t c) {
  return IsAlpha(c) || IsNumeric(c);
}

bool IsAsciiMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  const std::string& text = TextOf(self).bytes();
  if (!NoArguments(runtime, "isascii", arguments) || !runtime.StepScan(text.size())) return false;
  *result = Value::Bool(std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; }));
  return true;
}

bool IsIdentifierMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                        Value* result) {
  const std::string_view text = TextOf(self).view();
  if (!NoArguments(runtime, "isidentifier", arguments) || !runtime.StepScan(text.size())) {
    return false;
  }
  bool all = !text.empty() && IsIdentifierStart(DecodeAt(text, 0).value);
  for (size_t at = 0; all && at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    all = IsIdentifierPart(c.value);
    at += c.bytes;
  }
  *result = Value::Bool(all);
  return true;
}

template <char kCase>
bool CaseMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  if (!NoArguments(runtime, "str method", arguments) || !runtime.StepScan(TextOf(self).size())) {
    return false;
  }
  *result = Value::Bool(HasCase(TextOf(self).view(), kCase));
  return true;
}

bool FormatMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  return FormatBraces(runtime, self, arguments, result);
}

bool FormatMapMethod(Runtime& runtime, const Value& self, const Arguments& arguments,
                     Value* result) {
  ArgumentReader reader(runtime, "format_map", arguments);
  const Value* mapping = reader.Required({});
  if (!reader.Done()) return false;
  if (!mapping->is_dict()) return runtime.Fail("format_map() needs a mapping");
  Arguments named;
  for (const auto& [key, value] : mapping->as<Dict>().entries) {
    if (key.is_string()) named.keyword.emplace_back(key, value);
  }
  return FormatBraces(runtime, self, named, result);
}

bool EncodeMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "encode", arguments);
  reader.Optional("encoding");
  reader.Optional("errors");
  if (!reader.Done() || !runtime.Reserve(TextOf(self).size())) return false;
  auto* bytes = runtime.heap().New<Bytes>(TextOf(self));
  runtime.heap().Recharge(*bytes, sizeof(Bytes) + bytes->text.memory());
  *result = Value(bytes);
  return true;
}

bool DecodeMethod(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "decode", arguments);
  reader.Optional("encoding");
  reader.Optional("errors");
  if (!reader.Done() || !runtime.Reserve(self.as<Bytes>().text.size())) return false;
  *result = runtime.NewString(self.as<Bytes>().text);
  return true;
}

constexpr Method kBytesMethods[] = {{"decode", DecodeMethod}};

constexpr Method kStringMethods[] = {
    {"capitalize", MapText<Capitalize>},
    {"casefold", MapText<CaseFold>},
    {"center", PadMethod<'c'>},
    {"count", CountMethod},
    {"encode", EncodeMethod},
    {"endswith", StartsWithMethod<true>},
    {"expandtabs", ExpandTabsMethod},
    {"find", FindMethodOfStr<false, false>},
    {"format", FormatMethod},
    {"format_map", FormatMapMethod},
    {"index", FindMethodOfStr<false, true>},
    {"isalnum", AllMethod<IsAlphanumeric>},
    {"isalpha", AllMethod<IsAlpha>},
    {"isascii", IsAsciiMethod},
    {"isdecimal", AllMethod<IsDecimal>},
    {"isdigit", AllMethod<IsDigitChar>},
    {"isidentifier", IsIdentifierMethod},
    {"islower", CaseMethod<'l'>},
    {"isnumeric", AllMethod<IsNumeric>},
    {"isprintable", AllMethod<IsPrintable>},
    {"isspace", AllMethod<IsSpace>},
    {"istitle", CaseMethod<'t'>},
    {"isupper", CaseMethod<'u'>},
    {"join", JoinMethod},
    {"ljust", PadMethod<'<'>},
    {"lower", MapText<Lower>},
    {"lstrip", StripMethod<true, false>},
    {"partition", PartitionMethod<false>},
    {"removeprefix", RemoveAffixMethod<false>},
    {"removesuffix", RemoveAffixMethod<true>},
    {"replace", ReplaceMethod},
    {"rfind", FindMethodOfStr<true, false>},
    {"rindex", FindMethodOfStr<true, true>},
    {"rjust", PadMethod<'>'>},
    {"rpartition", PartitionMethod<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", StripMethod<false, true>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", StartsWithMethod<false>},
    {"strip", StripMethod<true, true>},
    {"swapcase", MapText<SwapCase>},
    {"title", MapText<TitleWords>},
    {"upper", MapText<Upper>},
    {"zfill", ZfillMethod},
};

}  // namespace

bool HasCase(std::string_view text, char which) {
  bool any = false;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    at += c.bytes;
    const bool upper = IsUpperChar(c.value) || (which == 't' && IsTitleChar(c.value));
    const bool lower = IsLowerChar(c.value);
    if (which == 'l' && (upper || IsTitleChar(c.value))) return false;
    if (which == 'u' && (lower || IsTitleChar(c.value))) return false;
    if (which == 't' && ((upper && in_word) || (lower && !in_word))) return false;
    in_word = upper || lower;
    any = any || upper || lower;
  }
  return any;
}

std::span<const Method> StringMethods() {
  return kStringMethods;
}
std::span<const Method> BytesMethods() {
  return kBytesMethods;
}

}  // namespace polysil::jinja

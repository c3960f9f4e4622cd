// Filters about numbers and single values; lookup of every filter by name.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

// A number read from a string is as untrusted as the string.
bool TaintOf(const Value& value) {
  return value.is_string() ? value.as<String>().text.any_untrusted() : value.tainted();
}

bool IntFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "int", arguments);
  const Value* otherwise = reader.Optional("default");
  const int64_t base = reader.OptionalInt("base", 10);
  if (!reader.Done()) return false;
  if (input.is_undefined()) return runtime.FailUndefined(input);
  Heap& heap = runtime.heap();
  std::optional<double> number;
  if (input.is_string()) {
    const std::string& text = input.as<String>().bytes();
    if (!runtime.Reserve(text.size())) return false;
    const bool valid_base = base == 0 || (base >= 2 && base <= 36);
    std::optional<Value> whole =
        valid_base ? ParseInt(heap, text, static_cast<int>(base)) : std::nullopt;
    if (whole) {
      *result = *std::move(whole);
      result->set_tainted(TaintOf(input));
      return true;
    }
    number = ParseFloat(text);
  } else if (input.is(Kind::kFloat)) {
    number = input.float_value();
  } else if (input.is_integer()) {
    *result = input.is(Kind::kBool) ? Value::Int(input.bool_value() ? 1 : 0) : input;
    return true;
  }
  if (number && std::isfinite(*number)) {
    *result = IntFromDouble(heap, *number);
    result->set_tainted(TaintOf(input));
  } else if (input.is(Kind::kFloat) && std::isinf(input.float_value())) {
    return runtime.Fail("cannot convert float infinity to integer");
  } else {
    *result = otherwise != nullptr ? *otherwise : Value::Int(0);
  }
  return true;
}

bool FloatFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "float", arguments);
  const Value* otherwise = reader.Optional("default");
  if (!reader.Done()) return false;
  if (input.is_undefined()) return runtime.FailUndefined(input);
  std::optional<double> number;
  if (input.is_string()) {
    if (!runtime.Reserve(input.as<String>().text.size())) return false;
    number = ParseFloat(input.as<String>().bytes());
  } else if (input.is_number()) {
    number = ToDouble(input);
  }
  *result = number                 ? Value::Float(*number, TaintOf(input))
            : otherwise != nullptr ? *otherwise
                                   : Value::Float(0);
  return true;
}

bool AbsFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "abs", arguments).Done()) return false;
  if (!input.is_number())
    return runtime.Fail("bad operand type for abs(): '" + TypeName(input) + "'");
  *result = AbsoluteValue(runtime.heap(), input);
  return true;
}

bool RoundFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "round", arguments);
  const int64_t precision = std::clamp<int64_t>(reader.OptionalInt("precision", 0), -400, 400);
  const Value* method = reader.Optional("method");
  if (!reader.Done()) return false;
  const std::string how = method == nullptr     ? "common"
                          : method->is_string() ? method->as<String>().bytes()
                                                : "";
  if (how != "common" && how != "ceil" && how != "floor") {
    return runtime.Fail("method must be common, ceil or floor");
  }
  if (input.is_undefined()) return runtime.FailUndefined(input);
  if (!input.is_number()) {
    return runtime.Fail("type " + TypeName(input) + " doesn't define __round__ method");
  }
  if (how == "common") {
    if (!input.is(Kind::kFloat) && precision >= 0) {
      *result = input.is(Kind::kBool) ? Value::Int(input.bool_value() ? 1 : 0) : input;
    } else if (!input.is(Kind::kFloat)) {
      const double rounded = RoundHalfEven(ToDouble(input), static_cast<int>(precision));
      *result = IntFromDouble(runtime.heap(), rounded);
      result->set_tainted(input.tainted());
    } else {
      *result = Value::Float(RoundHalfEven(input.float_value(), static_cast<int>(precision)),
                             input.tainted());
    }
    return true;
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = ToDouble(input) * unit;
  *result = Value::Float((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit,
                         input.tainted());
  return true;
}

bool LengthFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "length", arguments).Done()) return false;
  if (input.is_string() && !runtime.StepScan(input.as<String>().text.size())) return false;
  std::string error;
  const std::optional<int64_t> length = Length(input, &error);
  if (!length) return runtime.Fail(std::move(error));
  *result = Value::Int(*length, input.is_string() && TaintOf(input));
  return true;
}

bool DefaultFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                   Value* result) {
  ArgumentReader reader(runtime, "default", arguments);
  const Value* otherwise = reader.Optional("default_value");
  const bool boolean = reader.OptionalBool("boolean", false);
  if (!reader.Done()) return false;
  const bool replace = input.is_undefined() || (boolean && !Truth(input));
  *result = !replace ? input : otherwise != nullptr ? *otherwise : runtime.NewString("");
  return true;
}

bool WordCountFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                     Value* result) {
  Value string;
  if (!ArgumentReader(runtime, "wordcount", arguments).Done() ||
      !ToString(runtime, input, &string)) {
    return false;
  }
  const std::string_view text = string.as<String>().bytes();
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeAt(text, at);
    const bool word = IsAlpha(c.value) || IsNumeric(c.value) || c.value == '_';
    words += word && !in_word ? 1 : 0;
    in_word = word;
    at += c.bytes;
  }
  *result = Value::Int(words, TaintOf(string));
  return runtime.StepScan(text.size());
}

bool FileSizeFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                    Value* result) {
  ArgumentReader reader(runtime, "filesizeformat", arguments);
  const bool binary = reader.OptionalBool("binary", false);
  if (!reader.Done()) return false;
  std::optional<double> bytes;
  if (input.is_number()) bytes = ToDouble(input);
  if (input.is_string()) bytes = ParseFloat(input.as<String>().bytes());
  if (!bytes || !std::isfinite(*bytes)) return runtime.Fail("filesizeformat needs a finite number");
  const double base = binary ? 1024 : 1000;
  std::string text;
  if (*bytes == 1) {
    text = "1 Byte";
  } else if (*bytes < base) {
    text = FormatInt(IntFromDouble(runtime.heap(), *bytes)) + " Bytes";
  } else {
    const std::string_view prefixes = binary ? "KMGTPEZY" : "kMGTPEZY";
    double unit = base;
    size_t i = 0;
    do {
      unit *= base;
    } while (*bytes >= unit && ++i + 1 < prefixes.size());
    if (*bytes >= unit) unit *= base;
    char buffer[400];
    std::snprintf(buffer, sizeof(buffer), "%.1f %c%s", base * *bytes / unit, prefixes[i],
                  binary ? "iB" : "B");
    text = buffer;
  }
  *result = runtime.NewString(Text(std::move(text), TaintOf(input)));
  return true;
}

constexpr Filter kFilters[] = {
    {"abs", AbsFilter},
    {"count", LengthFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"filesizeformat", FileSizeFilter},
    {"float", FloatFilter},
    {"int", IntFilter},
    {"length", LengthFilter},
    {"round", RoundFilter},
    {"wordcount", WordCountFilter},
};

}  // namespace

std::span<const Filter> NumberFilters() {
  return kFilters;
}

const Filter* FindFilter(std::string_view name) {
  for (const std::span<const Filter> filters :
       {TextFilters(), NumberFilters(), SequenceFilters(), SelectionFilters()}) {
    for (const Filter& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace polysil::jinja

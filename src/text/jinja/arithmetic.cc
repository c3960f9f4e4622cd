// + - * / // % ** on values of every type.
#include <algorithm>
#include <cstdint>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"

namespace polysil::jinja {
namespace {

std::string_view Symbol(Arithmetic operation) {
  switch (operation) {
    case Arithmetic::kAdd:
      return "+";
    case Arithmetic::kSubtract:
      return "-";
    case Arithmetic::kMultiply:
      return "*";
    case Arithmetic::kDivide:
      return "/";
    case Arithmetic::kFloorDivide:
      return "//";
    case Arithmetic::kModulo:
      return "%";
    case Arithmetic::kPower:
      return "** or pow()";
  }
  return {};
}

bool Unsupported(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b) {
  return runtime.Fail("unsupported operand type(s) for " + std::string(Symbol(operation)) + ": '" +
                      TypeName(a) + "' and '" + TypeName(b) + "'");
}

bool Repeat(Runtime& runtime, const Value& sequence, const Value& count, Value* result) {
  const int64_t times = std::max<int64_t>(0, ToInt64(count).value_or(INT64_MAX));
  const size_t unit = sequence.is_string() ? sequence.as<String>().text.size()
                                           : sequence.as<List>().items.size() * sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(unit, static_cast<size_t>(times), &bytes)) bytes = SIZE_MAX;
  if (!runtime.Reserve(bytes)) return false;
  if (sequence.is_string()) {
    Text text;
    if (unit > 0) {
      for (int64_t i = 0; i < times; ++i) text.Append(sequence.as<String>().text);
    }
    *result = runtime.NewString(std::move(text), sequence.as<String>().markup);
    return true;
  }
  *result = runtime.NewList(sequence.kind());
  std::vector<Value>& items = result->as<List>().items;
  const std::vector<Value>& source = sequence.as<List>().items;
  if (!source.empty()) {
    for (int64_t i = 0; i < times; ++i) items.insert(items.end(), source.begin(), source.end());
  }
  return runtime.Recharge(*result);
}

bool AddStrings(Runtime& runtime, Value a, const Value& b, Value* result) {
  const auto& right = b.as<String>();
  const bool markup = a.as<String>().markup || right.markup;
  if (!runtime.Reserve(right.text.size())) return false;
  if (markup) {
    Text text;
    if (!AppendEscaped(runtime, a, &text) || !AppendEscaped(runtime, b, &text)) return false;
    *result = runtime.NewString(std::move(text), true);
    return true;
  }
  if (a.unique()) {
    auto& left = a.as<String>();
    left.text.Append(right.text);
    runtime.heap().Recharge(left, sizeof(String) + left.text.memory());
    *result = std::move(a);
    return true;
  }
  if (!runtime.Reserve(a.as<String>().text.size())) return false;
  Text text = a.as<String>().text;
  text.Append(right.text);
  *result = runtime.NewString(std::move(text));
  return true;
}

bool AddLists(Runtime& runtime, Value a, const Value& b, Value* result) {
  if (!runtime.Reserve(b.as<List>().items.size() * sizeof(Value))) return false;
  if (!a.unique()) {
    if (!runtime.Reserve(a.as<List>().items.size() * sizeof(Value))) return false;
    Value copy = runtime.NewList(a.kind());
    copy.as<List>().items = a.as<List>().items;
    a = std::move(copy);
  }
  std::vector<Value>& items = a.as<List>().items;
  const std::vector<Value>& more = b.as<List>().items;
  items.insert(items.end(), more.begin(), more.end());
  *result = std::move(a);
  return runtime.Recharge(*result);
}

}  // namespace

bool Add(Runtime& runtime, Value a, const Value& b, Value* result) {
  if (a.is_string() && b.is_string()) return AddStrings(runtime, std::move(a), b, result);
  if (a.is_undefined()) return runtime.FailUndefined(a);
  if (b.is_undefined()) return runtime.FailUndefined(b);
  if (a.is_sequence() && a.kind() == b.kind()) {
    return AddLists(runtime, std::move(a), b, result);
  }
  if (a.is_number() && b.is_number()) {
    std::string error;
    return Calculate(runtime.heap(), Arithmetic::kAdd, a, b, result, &error) ||
           runtime.Fail(std::move(error));
  }
  if (a.is_string() || a.is_sequence()) {
    const std::string type = a.is_string() ? "str" : TypeName(a);
    return runtime.Fail("can only concatenate " + type + " (not \"" + TypeName(b) + "\") to " +
                        type);
  }
  return Unsupported(runtime, Arithmetic::kAdd, a, b);
}

bool ApplyArithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b,
                     Value* result) {
  if (operation == Arithmetic::kAdd) return Add(runtime, a, b, result);
  if (operation == Arithmetic::kModulo && a.is_string()) {
    return FormatPercent(runtime, a, b, result);
  }
  if (a.is_undefined()) return runtime.FailUndefined(a);
  if (b.is_undefined()) return runtime.FailUndefined(b);
  if (operation == Arithmetic::kMultiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integer()) {
      return Repeat(runtime, a, b, result);
    }
    if ((b.is_string() || b.is_sequence()) && a.is_integer()) {
      return Repeat(runtime, b, a, result);
    }
    if (a.is_string() || a.is_sequence()) {
      return runtime.Fail("can't multiply sequence by non-int of type '" + TypeName(b) + "'");
    }
  }
  if (!a.is_number() || !b.is_number()) return Unsupported(runtime, operation, a, b);
  std::string error;
  return Calculate(runtime.heap(), operation, a, b, result, &error) ||
         runtime.Fail(std::move(error));
}

}  // namespace polysil::jinja

// The tests of the `is` operator.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/operations.h"
#include "text/jinja/string_methods.h"

namespace polysil::jinja {
namespace {

using Predicate = bool (*)(const Value&);

template <Predicate kHolds>
bool Is(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  *result = kHolds(input);
  return ArgumentReader(runtime, "test", arguments).Done();
}

bool Defined(const Value& value) {
  return !value.is_undefined();
}
bool NotDefined(const Value& value) {
  return value.is_undefined();
}
bool IsNone(const Value& value) {
  return value.is_none();
}
bool IsBoolean(const Value& value) {
  return value.is(Kind::kBool);
}
bool IsFalse(const Value& value) {
  return value.is(Kind::kBool) && !value.bool_value();
}
bool IsTrue(const Value& value) {
  return value.is(Kind::kBool) && value.bool_value();
}
bool IsInteger(const Value& value) {
  return value.is_integer() && !value.is(Kind::kBool);
}
bool IsFloat(const Value& value) {
  return value.is(Kind::kFloat);
}
bool IsString(const Value& value) {
  return value.is_string();
}
bool IsMapping(const Value& value) {
  return value.is_dict();
}
bool IsNumber(const Value& value) {
  return value.is_number();
}
bool IsEscaped(const Value& value) {
  return value.is_string() && value.as<String>().markup;
}
bool IsCallable(const Value& value) {
  return value.is(Kind::kCallable) || value.is(Kind::kLoop) || value.is_undefined();
}
bool IsSequence(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kUndefined:
      return true;
    default:
      return false;
  }
}

template <char kWhich>
bool IsCase(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  Text text;
  if (!ArgumentReader(runtime, "test", arguments).Done() || !AppendStr(runtime, input, &text)) {
    return false;
  }
  *result = HasCase(text.view(), kWhich);
  return true;
}

bool Remainder(Runtime& runtime, const Value& input, const Value& divisor, int64_t wanted,
               bool* result) {
  Value remainder;
  return ApplyArithmetic(runtime, Arithmetic::kModulo, input, divisor, &remainder) &&
         Equal(runtime, remainder, Value::Int(wanted), result);
}

bool Odd(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  return ArgumentReader(runtime, "odd", arguments).Done() &&
         Remainder(runtime, input, Value::Int(2), 1, result);
}

bool Even(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  return ArgumentReader(runtime, "even", arguments).Done() &&
         Remainder(runtime, input, Value::Int(2), 0, result);
}

bool DivisibleBy(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  ArgumentReader reader(runtime, "divisibleby", arguments);
  const Value* divisor = reader.Required("num");
  return reader.Done() && Remainder(runtime, input, *divisor, 0, result);
}

bool SameAs(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  ArgumentReader reader(runtime, "sameas", arguments);
  const Value* other = reader.Required("other");
  if (!reader.Done()) return false;
  *result = Same(input, *other);
  return true;
}

bool In(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  ArgumentReader reader(runtime, "in", arguments);
  const Value* container = reader.Required("seq");
  if (!reader.Done()) return false;
  if (container->is_undefined()) {
    *result = false;
    return true;
  }
  return Contains(runtime, *container, input, result);
}

template <bool kEqual>
bool EqualTo(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  ArgumentReader reader(runtime, "eq", arguments);
  const Value* other = reader.Required({});
  if (!reader.Done() || !Equal(runtime, input, *other, result)) return false;
  *result = *result == kEqual;
  return true;
}

template <char kSign, bool kOrEqual>
bool OrderedBy(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  ArgumentReader reader(runtime, "comparison", arguments);
  const Value* other = reader.Required({});
  if (!reader.Done()) return false;
  const char order[3] = {kSign, kOrEqual ? '=' : '\0', '\0'};
  return Compare(runtime, order, input, *other, result);
}

bool ExistsFilter(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  if (!ArgumentReader(runtime, "filter", arguments).Done() || !CheckHashable(runtime, input)) {
    return false;
  }
  const Filter* filter = input.is_string() ? FindFilter(input.as<String>().bytes()) : nullptr;
  *result = filter != nullptr && (runtime.serving() || !filter->extension);
  return true;
}

bool ExistsTest(Runtime& runtime, const Value& input, const Arguments& arguments, bool* result) {
  if (!ArgumentReader(runtime, "test", arguments).Done() || !CheckHashable(runtime, input)) {
    return false;
  }
  *result = input.is_string() && FindTest(input.as<String>().bytes()) != nullptr;
  return true;
}

constexpr Test kTests[] = {
    {"!=", EqualTo<false>},
    {"<", OrderedBy<'<', false>},
    {"<=", OrderedBy<'<', true>},
    {"==", EqualTo<true>},
    {">", OrderedBy<'>', false>},
    {">=", OrderedBy<'>', true>},
    {"boolean", Is<IsBoolean>},
    {"callable", Is<IsCallable>},
    {"defined", Is<Defined>},
    {"divisibleby", DivisibleBy},
    {"eq", EqualTo<true>},
    {"equalto", EqualTo<true>},
    {"escaped", Is<IsEscaped>},
    {"even", Even},
    {"false", Is<IsFalse>},
    {"filter", ExistsFilter},
    {"float", Is<IsFloat>},
    {"ge", OrderedBy<'>', true>},
    {"greaterthan", OrderedBy<'>', false>},
    {"gt", OrderedBy<'>', false>},
    {"in", In},
    {"integer", Is<IsInteger>},
    {"iterable", Is<IsIterable>},
    {"le", OrderedBy<'<', true>},
    {"lessthan", OrderedBy<'<', false>},
    {"lower", IsCase<'l'>},
    {"lt", OrderedBy<'<', false>},
    {"mapping", Is<IsMapping>},
    {"ne", EqualTo<false>},
    {"none", Is<IsNone>},
    {"number", Is<IsNumber>},
    {"odd", Odd},
    {"sameas", SameAs},
    {"sequence", Is<IsSequence>},
    {"string", Is<IsString>},
    {"test", ExistsTest},
    {"true", Is<IsTrue>},
    {"undefined", Is<NotDefined>},
    {"upper", IsCase<'u'>},
};

}  // namespace

const Test* FindTest(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kTests), std::end(kTests), name,
      [](const Test& test, std::string_view wanted) { return test.name < wanted; });
  return found != std::end(kTests) && found->name == name ? found : nullptr;
}

}  // namespace polysil::jinja

// Numbers with Python's rules: integers without a size limit (within reason), floats, and how both
// are written. Results that overflow 64 bits become BigInt. Pure functions over values; errors are
// messages in Python's words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace polysil::jinja {

enum class Arithmetic : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};

// Both must be numbers. False sets `error` to the message of the exception.
bool Calculate(Heap& heap, Arithmetic operation, const Value& a, const Value& b, Value* result,
               std::string* error);
bool Negate(Heap& heap, const Value& a, Value* result);
Value AbsoluteValue(Heap& heap, const Value& a);

enum class Order : uint8_t { kLess, kEqual, kGreater, kUnordered };
// Exact, also between a large int and a float. Both must be numbers.
Order CompareNumbers(const Value& a, const Value& b);
// The same with NaN as the least number: a total order.
int CompareNumbersTotal(const Value& a, const Value& b);

// Value of an integer when it fits.
std::optional<int64_t> ToInt64(const Value& integer);
double ToDouble(const Value& number);
bool IsZero(const Value& number);
// Python's int(float); the float must be finite.
Value IntFromDouble(Heap& heap, double value);
// Digits in `base` with Python's underscores, sign and surrounding space rules. Nothing if
// malformed.
std::optional<Value> ParseInt(Heap& heap, std::string_view text, int base);
// A plain decimal number without sign or underscores.
Value ParseDecimal(Heap& heap, std::string_view digits, bool negative);
std::optional<double> ParseFloat(std::string_view text);
// Python's round(): half to even on the decimal expansion.
double RoundHalfEven(double value, int digits);

std::string FormatInt(const Value& integer);
// Absolute value in base 8, 10 or 16, lower case.
std::string FormatMagnitude(const Value& integer, int base);
bool IsNegative(const Value& number);
// Python's repr(float): the shortest digits that give the value back.
std::string FormatFloat(double value);

}  // namespace polysil::jinja

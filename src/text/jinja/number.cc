#include "text/jinja/number.h"

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

using Big = boost::multiprecision::cpp_int;

// About 4,900 decimal digits; Python refuses to print more than 4,300.
constexpr size_t kBigBitsMax = 16384;

// Python's limit on int("...").
constexpr size_t kIntDigitsMax = 4300;

struct BigInt final : Object {
  explicit BigInt(Big number) : Object(Kind::kBigInt), value(std::move(number)) {}
  Big value;
};

Big ToBig(const Value& value) {
  if (value.is(Kind::kBigInt)) return value.as<BigInt>().value;
  return Big(value.is(Kind::kBool) ? int64_t{value.bool_value()} : value.int_value());
}

size_t Bits(const Big& value) {
  return value.is_zero() ? 0 : msb(abs(value)) + 1;
}

Value FromBig(Heap& heap, Big value) {
  if (value >= std::numeric_limits<int64_t>::min() &&
      value <= std::numeric_limits<int64_t>::max()) {
    return Value::Int(static_cast<int64_t>(value));
  }
  const size_t bytes = sizeof(BigInt) + Bits(value) / 8;
  auto* object = heap.New<BigInt>(std::move(value));
  heap.Recharge(*object, bytes);
  return Value(object);
}

int64_t Small(const Value& value) {
  return value.is(Kind::kBool) ? int64_t{value.bool_value()} : value.int_value();
}

bool BothSmall(const Value& a, const Value& b) {
  return !a.is(Kind::kBigInt) && !b.is(Kind::kBigInt);
}

double FloatFloorDivide(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

double FloatModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (b < 0) != (remainder < 0) ? remainder + b : remainder;
}

bool CalculateFloats(Arithmetic operation, double a, double b, Value* result, std::string* error) {
  switch (operation) {
    case Arithmetic::kAdd:
      *result = Value::Float(a + b);
      return true;
    case Arithmetic::kSubtract:
      *result = Value::Float(a - b);
      return true;
    case Arithmetic::kMultiply:
      *result = Value::Float(a * b);
      return true;
    case Arithmetic::kDivide:
    case Arithmetic::kFloorDivide:
    case Arithmetic::kModulo:
      if (b == 0) {
        *error = operation == Arithmetic::kDivide        ? "float division by zero"
                 : operation == Arithmetic::kFloorDivide ? "float floor division by zero"
                                                         : "float modulo";
        return false;
      }
      *result = Value::Float(operation == Arithmetic::kDivide        ? a / b
                             : operation == Arithmetic::kFloorDivide ? FloatFloorDivide(a, b)
                                                                     : FloatModulo(a, b));
      return true;
    case Arithmetic::kPower: {
      if (a == 0 && b < 0) {
        *error = "0.0 cannot be raised to a negative power";
        return false;
      }
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
        *error = "complex numbers are not supported";
        return false;
      }
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        *error = "(34, 'Numerical result out of range')";
        return false;
      }
      *result = Value::Float(power);
      return true;
    }
  }
  return false;
}

bool FloorDivMod(Heap& heap, bool modulo, const Value& a, const Value& b, Value* result) {
  if (BothSmall(a, b) && !(Small(a) == INT64_MIN && Small(b) == -1)) {
    const int64_t x = Small(a);
    const int64_t y = Small(b);
    int64_t quotient = x / y;
    int64_t remainder = x % y;
    if (remainder != 0 && (remainder < 0) != (y < 0)) {
      quotient -= 1;
      remainder += y;
    }
    *result = Value::Int(modulo ? remainder : quotient);
    return true;
  }
  const Big y = ToBig(b);
  Big quotient;
  Big remainder;
  divide_qr(ToBig(a), y, quotient, remainder);
  if (!remainder.is_zero() && (remainder < 0) != (y < 0)) {
    quotient -= 1;
    remainder += y;
  }
  *result = FromBig(heap, modulo ? remainder : quotient);
  return true;
}

bool IntPower(Heap& heap, const Value& a, const Value& b, Value* result, std::string* error) {
  if (IsNegative(b)) {
    if (IsZero(a)) {
      *error = "0.0 cannot be raised to a negative power";
      return false;
    }
    return CalculateFloats(Arithmetic::kPower, ToDouble(a), ToDouble(b), result, error);
  }
  const Big base = ToBig(a);
  const std::optional<int64_t> exponent = ToInt64(b);
  const bool trivial = base == 0 || base == 1 || base == -1;
  if (!trivial && (!exponent || *exponent > static_cast<int64_t>(kBigBitsMax) ||
                   Bits(base) * static_cast<size_t>(*exponent) > kBigBitsMax)) {
    *error = "the integer result is too large";
    return false;
  }
  if (trivial) {
    const bool odd = ToBig(b) % 2 != 0;
    *result = Value::Int(IsZero(b) ? 1 : base == -1 ? (odd ? -1 : 1) : static_cast<int64_t>(base));
    return true;
  }
  *result = FromBig(heap, pow(base, static_cast<unsigned>(*exponent)));
  return true;
}

bool CalculateInts(Heap& heap, Arithmetic operation, const Value& a, const Value& b, Value* result,
                   std::string* error) {
  int64_t small = 0;
  switch (operation) {
    case Arithmetic::kAdd:
      if (BothSmall(a, b) && !__builtin_add_overflow(Small(a), Small(b), &small)) break;
      *result = FromBig(heap, ToBig(a) + ToBig(b));
      return true;
    case Arithmetic::kSubtract:
      if (BothSmall(a, b) && !__builtin_sub_overflow(Small(a), Small(b), &small)) break;
      *result = FromBig(heap, ToBig(a) - ToBig(b));
      return true;
    case Arithmetic::kMultiply: {
      if (BothSmall(a, b) && !__builtin_mul_overflow(Small(a), Small(b), &small)) break;
      const Big x = ToBig(a);
      const Big y = ToBig(b);
      if (Bits(x) + Bits(y) > kBigBitsMax) {
        *error = "the integer result is too large";
        return false;
      }
      *result = FromBig(heap, x * y);
      return true;
    }
    case Arithmetic::kDivide:
    case Arithmetic::kFloorDivide:
    case Arithmetic::kModulo:
      if (IsZero(b)) {
        *error = operation == Arithmetic::kDivide ? "division by zero"
                                                  : "integer division or modulo by zero";
        return false;
      }
      if (operation != Arithmetic::kDivide) {
        return FloorDivMod(heap, operation == Arithmetic::kModulo, a, b, result);
      }
      *result = Value::Float(ToDouble(a) / ToDouble(b));
      return true;
    case Arithmetic::kPower:
      return IntPower(heap, a, b, result, error);
  }
  *result = Value::Int(small);
  return true;
}

}  // namespace

bool Calculate(Heap& heap, Arithmetic operation, const Value& a, const Value& b, Value* result,
               std::string* error) {
  const bool tainted = a.tainted() || b.tainted();
  const bool ok = a.is(Kind::kFloat) || b.is(Kind::kFloat)
                      ? CalculateFloats(operation, ToDouble(a), ToDouble(b), result, error)
                      : CalculateInts(heap, operation, a, b, result, error);
  result->set_tainted(tainted);
  return ok;
}

bool Negate(Heap& heap, const Value& a, Value* result) {
  if (!a.is_number()) return false;
  const bool tainted = a.tainted();
  if (a.is(Kind::kFloat)) {
    *result = Value::Float(-a.float_value());
  } else if (!a.is(Kind::kBigInt) && Small(a) != INT64_MIN) {
    *result = Value::Int(-Small(a));
  } else {
    *result = FromBig(heap, -ToBig(a));
  }
  result->set_tainted(tainted);
  return true;
}

Value AbsoluteValue(Heap& heap, const Value& a) {
  Value result = a;
  if (a.is(Kind::kFloat)) return Value::Float(std::fabs(a.float_value()), a.tainted());
  if (IsNegative(a)) {
    Negate(heap, a, &result);
  } else if (a.is(Kind::kBool)) {
    result = Value::Int(Small(a), a.tainted());
  }
  return result;
}

Order CompareNumbers(const Value& a, const Value& b) {
  if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) {
    const double x = ToDouble(a);
    const double y = ToDouble(b);
    if (std::isnan(x) || std::isnan(y)) return Order::kUnordered;
    const bool exact = a.kind() == b.kind() || std::isinf(x) || std::isinf(y) ||
                       std::max(std::fabs(x), std::fabs(y)) < 9e15;
    if (exact) return x < y ? Order::kLess : x > y ? Order::kGreater : Order::kEqual;
    // At least one is beyond 2^53, where conversion rounds: compare as integers. The other side's
    // fraction cannot matter, since it would have to be as large.
    const Big left = a.is(Kind::kFloat) ? Big(x) : ToBig(a);
    const Big right = b.is(Kind::kFloat) ? Big(y) : ToBig(b);
    return left < right ? Order::kLess : left > right ? Order::kGreater : Order::kEqual;
  }
  if (BothSmall(a, b)) {
    const int64_t x = Small(a);
    const int64_t y = Small(b);
    return x < y ? Order::kLess : x > y ? Order::kGreater : Order::kEqual;
  }
  const int order = ToBig(a).compare(ToBig(b));
  return order < 0 ? Order::kLess : order > 0 ? Order::kGreater : Order::kEqual;
}

int CompareNumbersTotal(const Value& a, const Value& b) {
  switch (CompareNumbers(a, b)) {
    case Order::kLess:
      return -1;
    case Order::kEqual:
      return 0;
    case Order::kGreater:
      return 1;
    case Order::kUnordered:
      break;
  }
  const bool a_nan = std::isnan(ToDouble(a));
  const bool b_nan = std::isnan(ToDouble(b));
  return a_nan == b_nan ? 0 : a_nan ? -1 : 1;
}

std::optional<int64_t> ToInt64(const Value& integer) {
  if (integer.is(Kind::kBigInt) || !integer.is_integer()) return std::nullopt;
  return Small(integer);
}

double ToDouble(const Value& number) {
  if (number.is(Kind::kFloat)) return number.float_value();
  if (number.is(Kind::kBigInt)) return static_cast<double>(number.as<BigInt>().value);
  return static_cast<double>(Small(number));
}

bool IsZero(const Value& number) {
  if (number.is(Kind::kBigInt)) return false;
  return number.is(Kind::kFloat) ? number.float_value() == 0 : Small(number) == 0;
}

bool IsNegative(const Value& number) {
  if (number.is(Kind::kBigInt)) return number.as<BigInt>().value < 0;
  return number.is(Kind::kFloat) ? number.float_value() < 0 : Small(number) < 0;
}

Value IntFromDouble(Heap& heap, double value) {
  const double whole = std::trunc(value);
  if (std::fabs(whole) < 9e18) return Value::Int(static_cast<int64_t>(whole));
  return FromBig(heap, Big(whole));
}

std::string FormatInt(const Value& integer) {
  if (integer.is(Kind::kBigInt)) return integer.as<BigInt>().value.str();
  return std::to_string(Small(integer));
}

std::string FormatMagnitude(const Value& integer, int base) {
  if (!integer.is(Kind::kBigInt) && Small(integer) != INT64_MIN) {
    char buffer[72];
    const auto end =
        std::to_chars(buffer, buffer + sizeof(buffer), std::llabs(Small(integer)), base);
    return std::string(buffer, end.ptr);
  }
  Big rest = abs(ToBig(integer));
  std::string digits;
  while (!rest.is_zero()) {
    digits.push_back("0123456789abcdef"[static_cast<unsigned>(rest % base)]);
    rest /= base;
  }
  return std::string(digits.rbegin(), digits.rend());
}

std::optional<Value> ParseInt(Heap& heap, std::string_view text, int base) {
  text = StripSpace(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      text.remove_prefix(2);
      if (text.starts_with('_')) text.remove_prefix(1);
    }
  }
  const bool any_base = base == 0;
  if (any_base) base = 10;
  std::string digits;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_') {
      if (!after_digit) return std::nullopt;
      after_digit = false;
      continue;
    }
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (digit >= base) return std::nullopt;
    digits.push_back(static_cast<char>(digit));
    after_digit = true;
  }
  if (!after_digit || digits.size() > kIntDigitsMax) return std::nullopt;
  if (any_base && digits.size() > 1 && digits[0] == 0 &&
      digits.find_first_not_of('\0') != std::string::npos) {
    return std::nullopt;
  }
  Big value = 0;
  for (const char digit : digits) value = value * base + static_cast<int>(digit);
  return FromBig(heap, negative ? Big(-value) : value);
}

Value ParseDecimal(Heap& heap, std::string_view digits, bool negative) {
  if (digits.size() <= 18) {
    int64_t value = 0;
    for (const char digit : digits) value = value * 10 + (digit - '0');
    return Value::Int(negative ? -value : value);
  }
  const size_t nonzero = std::min(digits.find_first_not_of('0'), digits.size() - 1);
  Big value(std::string(digits.substr(nonzero)));
  return FromBig(heap, negative ? -value : value);
}

}  // namespace polysil::jinja

// Floats to text and back, as Python writes and reads them.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "text/jinja/number.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// Consumes digits with single underscores between them; appends them without.
bool TakeDigits(std::string_view* text, std::string* plain) {
  bool any = false;
  while (!text->empty()) {
    if (IsDigit(text->front())) {
      plain->push_back(text->front());
      any = true;
    } else if (!(text->front() == '_' && any && text->size() > 1 && IsDigit((*text)[1]))) {
      break;
    }
    text->remove_prefix(1);
  }
  return any;
}

std::string LowerAscii(std::string_view text) {
  std::string lower;
  for (const char c : text) lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  return lower;
}

}  // namespace

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t mark = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (IsDigit(c)) digits.push_back(c);
  }
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  std::string result = text[0] == '-' ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    result += digits[0];
    if (count > 1) result += "." + digits.substr(1);
    result += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    return result + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
  }
  if (exponent < 0) {
    return result + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  if (count <= exponent + 1) {
    return result + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent) + 1;
  return result + digits.substr(0, point) + "." + digits.substr(point);
}

std::optional<double> ParseFloat(std::string_view text) {
  text = StripSpace(text);
  std::string plain;
  if (text.starts_with('-') || text.starts_with('+')) {
    if (text[0] == '-') plain = "-";
    text.remove_prefix(1);
  }
  const double sign = plain.empty() ? 1 : -1;
  if (!text.empty() && !IsDigit(text[0]) && text[0] != '.') {
    const std::string name = LowerAscii(text);
    if (name == "inf" || name == "infinity") return sign * std::numeric_limits<double>::infinity();
    if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
    return std::nullopt;
  }
  bool digits = TakeDigits(&text, &plain);
  if (text.starts_with('.')) {
    if (!digits) plain.push_back('0');
    plain.push_back('.');
    text.remove_prefix(1);
    if (TakeDigits(&text, &plain)) {
      digits = true;
    } else {
      plain.push_back('0');
    }
  }
  if (!digits) return std::nullopt;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E')) {
    plain.push_back('e');
    text.remove_prefix(1);
    if (text.starts_with('-') || text.starts_with('+')) {
      plain.push_back(text[0]);
      text.remove_prefix(1);
    }
    if (!TakeDigits(&text, &plain)) return std::nullopt;
  }
  if (!text.empty()) return std::nullopt;
  return std::strtod(plain.c_str(), nullptr);
}

double RoundHalfEven(double value, int digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  // The C library prints the exact value rounded half to even.
  char buffer[700];
  const int length = std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(buffer)) return value;
  return std::strtod(buffer, nullptr);
}

}  // namespace polysil::jinja

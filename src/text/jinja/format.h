// printf-style and str.format formatting. Text keeps its marks; numbers are formatted within
// bounds.
#pragma once

#include "text/jinja/functions.h"
#include "text/jinja/runtime.h"

namespace polysil::jinja {

// format % arguments, where `format` is a string.
bool FormatPercent(Runtime& runtime, const Value& format, const Value& arguments, Value* result);
// format.format(*arguments).
bool FormatBraces(Runtime& runtime, const Value& format, const Arguments& arguments, Value* result);

// One conversion of either kind.
struct FormatSpec {
  Text fill = Text::Trusted(" ");
  char align = '\0';  // < > = ^, or c for str.center
  char sign = '\0';   // + - space
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = '\0';  // , _
  int64_t precision = -1;
  char type = '\0';
};
// A number by type d b o x X e E f F g G % n or none.
bool FormatNumber(Runtime& runtime, const Value& number, const FormatSpec& spec, Text* out);
// Pads text on the sides that `align` says.
bool Pad(Runtime& runtime, const Text& text, const FormatSpec& spec, char align_default, Text* out);

}  // namespace polysil::jinja

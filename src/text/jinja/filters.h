// The filter tables that FindFilter() joins.
#pragma once

#include <span>

#include "text/jinja/functions.h"
#include "text/jinja/runtime.h"

namespace polysil::jinja {

std::span<const Filter> TextFilters();
std::span<const Filter> NumberFilters();
std::span<const Filter> SequenceFilters();
std::span<const Filter> SelectionFilters();

// For filters that are generators in Python: `kFilter` fills `*result`, a generator, and whatever
// goes wrong there does so only when somebody gets that far in it.
template <FilterFunction kFilter>
bool Lazily(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  *result = runtime.NewGenerator();
  if (kFilter(runtime, input, arguments, result)) return true;
  return runtime.TakeError(&result->as<List>().error);
}

}  // namespace polysil::jinja

// map, select, reject, selectattr, rejectattr.
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"

namespace polysil::jinja {
namespace {

std::vector<Value>& ItemsOf(const Value& value) {
  return value.as<List>().items;
}

// What follows the name of a filter or test, for that filter or test.
Arguments Rest(const Arguments& arguments, size_t from) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(from),
                         arguments.positional.end());
  rest.keyword = arguments.keyword;
  return rest;
}

bool MapAttribute(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  const Value* path = arguments.Keyword("attribute");
  const Value* otherwise = arguments.Keyword("default");
  if (arguments.keyword.size() > (otherwise != nullptr ? 2U : 1U)) {
    return runtime.Fail("Unexpected keyword argument");
  }
  Iteration iteration;
  if (!iteration.Start(runtime, input)) return false;
  Value item;
  while (iteration.Next(runtime, &item)) {
    if (!LookupPath(runtime, item, *path, otherwise, &ItemsOf(*result).emplace_back())) {
      return false;
    }
  }
  return !runtime.failed() && runtime.Recharge(*result);
}

bool MapFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!Truth(input)) return true;
  if (arguments.positional.empty() && arguments.Keyword("attribute") != nullptr) {
    return MapAttribute(runtime, input, arguments, result);
  }
  if (arguments.positional.empty()) return runtime.Fail("map requires a filter argument");
  const Value& name = arguments.positional[0];
  const Filter* filter = name.is_string() ? FindFilter(name.as<String>().bytes()) : nullptr;
  if (filter == nullptr || (filter->extension && !runtime.serving())) {
    return runtime.Fail("No filter named " + ReprForMessage(name) + ".");
  }
  const DepthGuard guard(runtime);
  const Arguments rest = Rest(arguments, 1);
  Iteration iteration;
  if (!guard.ok() || !iteration.Start(runtime, input)) return false;
  Value item;
  while (iteration.Next(runtime, &item)) {
    Value mapped;
    if (!filter->function(runtime, item, rest, &mapped)) return false;
    ItemsOf(*result).push_back(std::move(mapped));
    if (!runtime.Room(0)) return false;
  }
  return !runtime.failed() && runtime.Recharge(*result);
}

template <bool kKeep, bool kAttribute>
bool SelectFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!Truth(input)) return true;
  if (kAttribute && arguments.positional.empty()) {
    return runtime.Fail("Missing parameter for attribute name");
  }
  const size_t skip = kAttribute ? 1 : 0;
  const Test* test = nullptr;
  if (arguments.positional.size() > skip) {
    const Value& name = arguments.positional[skip];
    test = name.is_string() ? FindTest(name.as<String>().bytes()) : nullptr;
    if (test == nullptr) return runtime.Fail("No test named " + ReprForMessage(name) + ".");
  }
  const Arguments rest = test == nullptr ? Arguments() : Rest(arguments, skip + 1);
  Iteration iteration;
  if (!iteration.Start(runtime, input)) return false;
  Value item;
  while (iteration.Next(runtime, &item)) {
    Value subject = item;
    if (kAttribute && !LookupPath(runtime, item, arguments.positional[0], nullptr, &subject)) {
      return false;
    }
    bool holds = Truth(subject);
    if (test != nullptr && !test->function(runtime, subject, rest, &holds)) return false;
    if (holds == kKeep) ItemsOf(*result).push_back(item);
  }
  return !runtime.failed() && runtime.Recharge(*result);
}

constexpr Filter kFilters[] = {
    {"map", Lazily<MapFilter>},
    {"reject", Lazily<SelectFilter<false, false>>},
    {"rejectattr", Lazily<SelectFilter<false, true>>},
    {"select", Lazily<SelectFilter<true, false>>},
    {"selectattr", Lazily<SelectFilter<true, true>>},
};

}  // namespace

std::span<const Filter> SelectionFilters() {
  return kFilters;
}

}  // namespace polysil::jinja

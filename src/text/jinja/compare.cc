// Equality, order, sorting, containment.
#include <algorithm>
#include <numeric>

#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"

namespace polysil::jinja {
namespace {

bool EqualItems(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b,
                bool* equal) {
  *equal = a.size() == b.size();
  for (size_t i = 0; *equal && i < a.size(); ++i) {
    if (!Equal(runtime, a[i], b[i], equal)) return false;
  }
  return true;
}

bool EqualDicts(Runtime& runtime, const Dict& a, const Dict& b, bool* equal) {
  *equal = a.entries.size() == b.entries.size();
  for (size_t i = 0; *equal && i < a.entries.size(); ++i) {
    const Value* other = b.Find(a.entries[i].first);
    if (other == nullptr) {
      *equal = false;
    } else if (!Equal(runtime, a.entries[i].second, *other, equal)) {
      return false;
    }
  }
  return true;
}

bool Unordered(Runtime& runtime, std::string_view order, const Value& a, const Value& b) {
  return runtime.Fail("'" + std::string(order) + "' not supported between instances of '" +
                      TypeName(a) + "' and '" + TypeName(b) + "'");
}

bool Holds(std::string_view order, int comparison) {
  if (order == "<") return comparison < 0;
  if (order == "<=") return comparison <= 0;
  return order == ">" ? comparison > 0 : comparison >= 0;
}

}  // namespace

bool Equal(Runtime& runtime, const Value& a, const Value& b, bool* equal) {
  if (!runtime.Step()) return false;
  if (a.is_number() && b.is_number()) {
    *equal = CompareNumbers(a, b) == Order::kEqual;
    return true;
  }
  *equal = false;
  if (a.kind() != b.kind()) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      *equal = true;
      return true;
    case Kind::kString:
      *equal = a.as<String>().bytes() == b.as<String>().bytes();
      return true;
    case Kind::kBytes:
      *equal = a.as<Bytes>().text.bytes() == b.as<Bytes>().text.bytes();
      return true;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDictView: {
      const DepthGuard guard(runtime);
      return guard.ok() && EqualItems(runtime, a.as<List>().items, b.as<List>().items, equal);
    }
    case Kind::kDict: {
      const DepthGuard guard(runtime);
      return guard.ok() && EqualDicts(runtime, a.as<Dict>(), b.as<Dict>(), equal);
    }
    case Kind::kRange: {
      const auto& x = a.as<Range>();
      const auto& y = b.as<Range>();
      *equal = x.length() == y.length() &&
               (x.length() == 0 || (x.start == y.start && (x.length() == 1 || x.step == y.step)));
      return true;
    }
    default:
      *equal = a.object() == b.object();
      return true;
  }
}

bool Compare(Runtime& runtime, std::string_view order, const Value& a, const Value& b,
             bool* result) {
  if (!runtime.Step()) return false;
  if (a.is_undefined()) return runtime.FailUndefined(a);
  if (b.is_undefined()) return runtime.FailUndefined(b);
  if (a.is_number() && b.is_number()) {
    const Order comparison = CompareNumbers(a, b);
    *result = comparison != Order::kUnordered && Holds(order, comparison == Order::kLess      ? -1
                                                              : comparison == Order::kGreater ? 1
                                                                                              : 0);
    return true;
  }
  if (a.kind() != b.kind()) return Unordered(runtime, order, a, b);
  if (a.is_string()) {
    // UTF-8 sorts as its code points do.
    *result = Holds(order, a.as<String>().bytes().compare(b.as<String>().bytes()));
    return true;
  }
  if (!a.is_sequence()) return Unordered(runtime, order, a, b);
  const DepthGuard guard(runtime);
  if (!guard.ok()) return false;
  const std::vector<Value>& x = a.as<List>().items;
  const std::vector<Value>& y = b.as<List>().items;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    bool equal = false;
    if (!Equal(runtime, x[i], y[i], &equal)) return false;
    if (!equal) return Compare(runtime, order, x[i], y[i], result);
  }
  *result = Holds(order, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
  return true;
}

bool SortByKeys(Runtime& runtime, const std::vector<Value>& keys, bool reverse,
                std::vector<Value>* items) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // A failed comparison says "not less", which keeps the sort's own loops sound.
  const auto less = [&](size_t a, size_t b) {
    bool result = false;
    return !runtime.failed() && Compare(runtime, "<", keys[a], keys[b], &result) && result;
  };
  // Equal items keep their order in both directions.
  if (reverse) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), less);
  if (reverse) std::reverse(order.begin(), order.end());
  if (runtime.failed()) return false;
  std::vector<Value> sorted;
  sorted.reserve(items->size());
  for (const size_t i : order) sorted.push_back((*items)[i]);
  *items = std::move(sorted);
  return true;
}

bool Contains(Runtime& runtime, const Value& container, const Value& item, bool* contains) {
  *contains = false;
  switch (container.kind()) {
    case Kind::kString: {
      if (item.is_undefined() || !item.is_string()) {
        return runtime.Fail("'in <string>' requires string as left operand, not " + TypeName(item));
      }
      const std::string& text = container.as<String>().bytes();
      if (!runtime.StepScan(text.size())) return false;
      *contains = FindBytes(text, item.as<String>().bytes()) != std::string_view::npos;
      return true;
    }
    case Kind::kDict:
      if (!CheckHashable(runtime, item)) return false;
      *contains = container.as<Dict>().Find(item) != nullptr;
      return true;
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
      return runtime.Fail("argument of type '" + TypeName(container) + "' is not iterable");
    default:
      break;
  }
  if (!IsIterable(container)) {
    return runtime.Fail("argument of type '" + TypeName(container) + "' is not iterable");
  }
  Iteration iteration;
  if (!iteration.Start(runtime, container)) return false;
  Value candidate;
  while (!*contains && iteration.Next(runtime, &candidate)) {
    if (!Equal(runtime, candidate, item, contains)) return false;
  }
  return !runtime.failed();
}

}  // namespace polysil::jinja

// Filters about sequences as a whole; those that pick items are in selection_filters.cc.
#include <algorithm>
#include <set>

#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

std::vector<Value>& ItemsOf(const Value& value) {
  return value.as<List>().items;
}

// Strings in lower case unless case matters, everything else as it is.
bool SortKey(Runtime& runtime, bool case_sensitive, Value* key) {
  if (case_sensitive || !key->is_string()) return true;
  const Text& text = key->as<String>().text;
  if (!runtime.StepScan(text.size())) return false;
  *key = runtime.NewString(Lower(text));
  return true;
}

// The value of `attribute` of the item; the item itself where there is none.
bool KeyOf(Runtime& runtime, const Value& item, const Value* attribute, const Value* otherwise,
           bool case_sensitive, Value* key) {
  if (attribute == nullptr || attribute->is_none()) {
    *key = item;
  } else if (!LookupPath(runtime, item, *attribute, otherwise, key)) {
    return false;
  }
  return SortKey(runtime, case_sensitive, key);
}

bool FirstFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  Iteration iteration;
  if (!ArgumentReader(runtime, "first", arguments).Done() || !iteration.Start(runtime, input)) {
    return false;
  }
  if (!iteration.Next(runtime, result)) {
    *result = runtime.NewUndefined("No first item, sequence was empty.");
  }
  return !runtime.failed();
}

bool CheckReversible(Runtime& runtime, const Value& input) {
  if (input.is(Kind::kGenerator) || !IsIterable(input)) {
    return runtime.Fail("'" + TypeName(input) + "' object is not reversible");
  }
  return true;
}

bool LastFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "last", arguments).Done() || !CheckReversible(runtime, input)) {
    return false;
  }
  std::vector<Value> items;
  if (input.is_string() && !input.as<String>().text.empty()) {
    return GetItem(runtime, input, Value::Int(-1), result);
  }
  if (!Collect(runtime, input, &items)) return false;
  *result =
      items.empty() ? runtime.NewUndefined("No last item, sequence was empty.") : items.back();
  return true;
}

bool ListFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  *result = runtime.NewList();
  return ArgumentReader(runtime, "list", arguments).Done() &&
         Collect(runtime, input, &ItemsOf(*result)) && runtime.Recharge(*result);
}

bool ItemsFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "items", arguments).Done()) return false;
  if (input.is_undefined()) return true;
  if (!input.is_dict()) return runtime.Fail("Can only get item pairs from a mapping.");
  Value view;
  if (!FindMethod(Kind::kDict, "items")->function(runtime, input, Arguments(), &view)) return false;
  ItemsOf(*result) = std::move(ItemsOf(view));
  return runtime.Recharge(*result);
}

bool DictSortFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                    Value* result) {
  ArgumentReader reader(runtime, "dictsort", arguments);
  const bool case_sensitive = reader.OptionalBool("case_sensitive", false);
  const Value* by = reader.Optional("by");
  const bool reverse = reader.OptionalBool("reverse", false);
  if (!reader.Done()) return false;
  const std::string what = by == nullptr ? "key" : by->is_string() ? by->as<String>().bytes() : "";
  if (what != "key" && what != "value") {
    return runtime.Fail("You can only sort by either \"key\" or \"value\"");
  }
  if (input.is_undefined()) return runtime.FailUndefined(input);
  if (!input.is_dict()) {
    return runtime.Fail("'" + TypeName(input) + "' object has no attribute 'items'");
  }
  Value view;
  if (!FindMethod(Kind::kDict, "items")->function(runtime, input, Arguments(), &view)) return false;
  std::vector<Value> keys;
  for (const auto& [key, value] : input.as<Dict>().entries) {
    keys.push_back(what == "key" ? key : value);
    if (!SortKey(runtime, case_sensitive, &keys.back())) return false;
  }
  *result = runtime.NewList();
  ItemsOf(*result) = std::move(ItemsOf(view));
  return SortByKeys(runtime, keys, reverse, &ItemsOf(*result)) && runtime.Recharge(*result);
}

bool SortFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "sort", arguments);
  const bool reverse = reader.OptionalBool("reverse", false);
  const bool case_sensitive = reader.OptionalBool("case_sensitive", false);
  const Value* attribute = reader.Optional("attribute");
  if (!reader.Done()) return false;
  // "a,b" sorts by several attributes.
  std::vector<Value> paths;
  if (attribute != nullptr && attribute->is_string()) {
    for (Text& path : Split(attribute->as<String>().text, ",", -1)) {
      paths.push_back(runtime.NewString(std::move(path)));
    }
  } else {
    paths.push_back(attribute == nullptr ? Value::None() : *attribute);
  }
  Value list = runtime.NewList();
  if (!Collect(runtime, input, &ItemsOf(list))) return false;
  std::vector<Value> keys;
  for (const Value& item : ItemsOf(list)) {
    Value key = runtime.NewList();
    for (const Value& path : paths) {
      if (!KeyOf(runtime, item, &path, nullptr, case_sensitive, &ItemsOf(key).emplace_back())) {
        return false;
      }
    }
    keys.push_back(std::move(key));
  }
  if (!SortByKeys(runtime, keys, reverse, &ItemsOf(list))) return false;
  *result = std::move(list);
  return runtime.Recharge(*result);
}

bool UniqueFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "unique", arguments);
  const bool case_sensitive = reader.OptionalBool("case_sensitive", false);
  const Value* attribute = reader.Optional("attribute");
  Iteration iteration;
  if (!reader.Done() || !iteration.Start(runtime, input)) return false;
  std::set<Value, KeyLess> seen;
  Value item;
  while (iteration.Next(runtime, &item)) {
    Value key;
    if (!KeyOf(runtime, item, attribute, nullptr, case_sensitive, &key) ||
        !CheckHashable(runtime, key)) {
      return false;
    }
    if (!seen.insert(key).second) continue;
    ItemsOf(*result).push_back(item);
    if (!runtime.Reserve(64)) return false;
  }
  return !runtime.failed() && runtime.Recharge(*result);
}

template <bool kMax>
bool ExtremeFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                   Value* result) {
  ArgumentReader reader(runtime, kMax ? "max" : "min", arguments);
  const bool case_sensitive = reader.OptionalBool("case_sensitive", false);
  const Value* attribute = reader.Optional("attribute");
  Iteration iteration;
  if (!reader.Done() || !iteration.Start(runtime, input)) return false;
  Value item;
  Value best_key;
  bool any = false;
  while (iteration.Next(runtime, &item)) {
    Value key;
    if (!KeyOf(runtime, item, attribute, nullptr, case_sensitive, &key)) return false;
    bool better = !any;
    if (any && !Compare(runtime, kMax ? ">" : "<", key, best_key, &better)) return false;
    if (better) {
      *result = item;
      best_key = key;
    }
    any = true;
  }
  if (!any) *result = runtime.NewUndefined("No aggregated item, sequence was empty.");
  return !runtime.failed();
}

bool SumFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "sum", arguments);
  const Value* attribute = reader.Optional("attribute");
  const Value* start = reader.Optional("start");
  Iteration iteration;
  if (!reader.Done() || !iteration.Start(runtime, input)) return false;
  if (start != nullptr && start->is_string()) {
    return runtime.Fail("sum() can't sum strings [use ''.join(seq) instead]");
  }
  Value total = start != nullptr ? *start : Value::Int(0);
  Value item;
  while (iteration.Next(runtime, &item)) {
    Value term;
    Value next;
    if (!KeyOf(runtime, item, attribute, nullptr, true, &term) ||
        !Add(runtime, std::move(total), term, &next)) {
      return false;
    }
    total = std::move(next);
  }
  *result = std::move(total);
  return !runtime.failed();
}

bool ReverseFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                   Value* result) {
  if (!ArgumentReader(runtime, "reverse", arguments).Done()) return false;
  if (input.is_string()) {
    return GetSlice(runtime, input, Value::None(), Value::None(), Value::Int(-1), result);
  }
  if (!IsIterable(input) || input.is(Kind::kLoop)) {
    return runtime.Fail("argument must be iterable");
  }
  // What Python cannot turn around in place becomes a list, everything else an iterator.
  const bool list = input.is(Kind::kGenerator);
  *result = list ? runtime.NewList()
                 : runtime.NewGenerator(input.is_list() ? "list_reverseiterator" : "reversed");
  if (!Collect(runtime, input, &ItemsOf(*result))) return false;
  std::reverse(ItemsOf(*result).begin(), ItemsOf(*result).end());
  return runtime.Recharge(*result);
}

bool BatchFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "batch", arguments);
  const int64_t size = reader.RequiredInt("linecount");
  const Value* fill = reader.Optional("fill_with");
  std::vector<Value> items;
  if (!reader.Done() || !Collect(runtime, input, &items)) return false;
  Value batch = runtime.NewList();
  for (const Value& item : items) {
    if (static_cast<int64_t>(ItemsOf(batch).size()) == size) {
      ItemsOf(*result).push_back(std::move(batch));
      batch = runtime.NewList();
      if (!runtime.Room(0)) return false;
    }
    ItemsOf(batch).push_back(item);
  }
  const auto last = static_cast<int64_t>(ItemsOf(batch).size());
  if (last > 0) {
    if (fill != nullptr && !fill->is_none() && last < size) {
      if (!runtime.Reserve(static_cast<size_t>(size - last) * sizeof(Value))) return false;
      ItemsOf(batch).resize(static_cast<size_t>(size), *fill);
    }
    ItemsOf(*result).push_back(std::move(batch));
  }
  return runtime.Recharge(*result);
}

bool SliceFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "slice", arguments);
  const int64_t slices = reader.RequiredInt("slices");
  const Value* fill = reader.Optional("fill_with");
  std::vector<Value> items;
  if (!reader.Done() || !Collect(runtime, input, &items)) return false;
  if (slices == 0) return runtime.Fail("integer division or modulo by zero");
  if (slices < 0) return true;
  const auto length = static_cast<int64_t>(items.size());
  const int64_t each = length / slices;
  const int64_t extra = length % slices;
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(slices), sizeof(List) + sizeof(Value), &bytes) ||
      !runtime.Reserve(bytes)) {
    return runtime.Reserve(SIZE_MAX / 2);
  }
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t count = each + (i < extra ? 1 : 0);
    Value slice = runtime.NewList();
    ItemsOf(slice).assign(items.begin() + begin, items.begin() + begin + count);
    if (fill != nullptr && !fill->is_none() && i >= extra) ItemsOf(slice).push_back(*fill);
    ItemsOf(*result).push_back(std::move(slice));
    begin += count;
  }
  return runtime.Recharge(*result);
}

bool GroupByFilter(Runtime& runtime, const Value& input, const Arguments& arguments,
                   Value* result) {
  ArgumentReader reader(runtime, "groupby", arguments);
  const Value* attribute = reader.Required("attribute");
  const Value* otherwise = reader.Optional("default");
  const bool case_sensitive = reader.OptionalBool("case_sensitive", false);
  std::vector<Value> items;
  if (!reader.Done() || !Collect(runtime, input, &items)) return false;
  std::vector<Value> keys;
  for (const Value& item : items) {
    if (!KeyOf(runtime, item, attribute, otherwise, case_sensitive, &keys.emplace_back())) {
      return false;
    }
  }
  std::vector<Value> sorted_keys = keys;
  if (!SortByKeys(runtime, keys, false, &items) ||
      !SortByKeys(runtime, keys, false, &sorted_keys)) {
    return false;
  }
  *result = runtime.NewList();
  for (size_t i = 0; i < items.size(); ++i) {
    bool same = false;
    if (i > 0 && !Equal(runtime, sorted_keys[i - 1], sorted_keys[i], &same)) return false;
    if (!same) {
      Value group = runtime.NewList(Kind::kTuple);
      group.as<List>().group = true;
      // The key of a group is its first item's, in the case it has there.
      Value key;
      if (!KeyOf(runtime, items[i], attribute, otherwise, true, &key)) return false;
      ItemsOf(group) = {std::move(key), runtime.NewList()};
      ItemsOf(*result).push_back(std::move(group));
    }
    ItemsOf(ItemsOf(ItemsOf(*result).back())[1]).push_back(items[i]);
    if (!runtime.Room(0)) return false;
  }
  return runtime.Recharge(*result);
}

bool JoinFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "join", arguments);
  const Value* separator = reader.Optional("d");
  const Value* attribute = reader.Optional("attribute");
  Iteration iteration;
  if (!reader.Done()) return false;
  Text between;
  if (separator != nullptr && !AppendStr(runtime, *separator, &between)) return false;
  if (!IsIterable(input)) return runtime.Fail("can only join an iterable");
  if (!iteration.Start(runtime, input)) return false;
  Text out;
  Value item;
  for (bool first = true; iteration.Next(runtime, &item); first = false) {
    Value value;
    if (!KeyOf(runtime, item, attribute, nullptr, true, &value)) return false;
    if (!first) {
      if (!runtime.Reserve(between.size())) return false;
      out.Append(between);
    }
    if (!AppendStr(runtime, value, &out)) return false;
  }
  if (runtime.failed()) return false;
  *result = runtime.NewString(std::move(out));
  return runtime.Room(0);
}

bool AttrFilter(Runtime& runtime, const Value& input, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "attr", arguments);
  const Value* name = reader.Required("name");
  if (!reader.Done()) return false;
  if (input.is_undefined()) return runtime.FailUndefined(input);
  if (!name->is_string()) return runtime.Fail("attribute name must be string");
  bool found = false;
  if (!GetOnlyAttribute(runtime, input, *name, &found, result)) return false;
  if (!found) {
    *result = runtime.NewUndefined(Undefined::Reason::kMember,
                                   input.is_none() ? "None" : TypeName(input) + " object", *name);
  }
  return true;
}

constexpr Filter kFilters[] = {
    {"attr", AttrFilter},
    {"batch", Lazily<BatchFilter>},
    {"dictsort", DictSortFilter},
    {"first", FirstFilter},
    {"groupby", GroupByFilter},
    {"items", Lazily<ItemsFilter>},
    {"join", JoinFilter},
    {"last", LastFilter},
    {"list", ListFilter},
    {"max", ExtremeFilter<true>},
    {"min", ExtremeFilter<false>},
    {"reverse", ReverseFilter},
    {"slice", Lazily<SliceFilter>},
    {"sort", SortFilter},
    {"sum", SumFilter},
    {"unique", Lazily<UniqueFilter>},
};

}  // namespace

std::span<const Filter> SequenceFilters() {
  return kFilters;
}

}  // namespace polysil::jinja

// The methods of list, tuple, dict and the numbers; lookup of every method by name.
#include <algorithm>
#include <cmath>

#include "text/jinja/functions.h"
#include "text/jinja/operations.h"
#include "text/jinja/string_methods.h"

namespace polysil::jinja {
namespace {

std::vector<Value>& ItemsOf(const Value& value) {
  return value.as<List>().items;
}

bool ListIndex(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "index", arguments);
  const Value* wanted = reader.Required({});
  const auto length = static_cast<int64_t>(ItemsOf(self).size());
  const auto clamp = [length](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  };
  const int64_t start = clamp(reader.OptionalInt({}, 0));
  const int64_t stop = clamp(reader.OptionalInt({}, length));
  if (!reader.Done()) return false;
  for (int64_t i = start; i < stop; ++i) {
    bool equal = false;
    if (!Equal(runtime, ItemsOf(self)[static_cast<size_t>(i)], *wanted, &equal)) return false;
    if (equal) {
      *result = Value::Int(i);
      return true;
    }
  }
  return runtime.Fail(ReprForMessage(*wanted) + " is not in list");
}

bool ListCount(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "count", arguments);
  const Value* wanted = reader.Required({});
  if (!reader.Done()) return false;
  int64_t count = 0;
  for (const Value& item : ItemsOf(self)) {
    bool equal = false;
    if (!Equal(runtime, item, *wanted, &equal)) return false;
    count += equal ? 1 : 0;
  }
  *result = Value::Int(count);
  return true;
}

bool ListCopy(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "copy", arguments).Done() ||
      !runtime.Reserve(ItemsOf(self).size() * sizeof(Value))) {
    return false;
  }
  *result = runtime.NewList();
  ItemsOf(*result) = ItemsOf(self);
  return runtime.Recharge(*result);
}

bool ListAppend(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "append", arguments);
  const Value* item = reader.Required({});
  if (!reader.Done()) return false;
  ItemsOf(self).push_back(*item);
  *result = Value::None();
  return runtime.Recharge(self);
}

bool ListExtend(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "extend", arguments);
  const Value* iterable = reader.Required({});
  std::vector<Value> items;
  if (!reader.Done() || !Collect(runtime, *iterable, &items)) return false;
  ItemsOf(self).insert(ItemsOf(self).end(), items.begin(), items.end());
  *result = Value::None();
  return runtime.Recharge(self);
}

bool ListInsert(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "insert", arguments);
  const int64_t index = reader.OptionalInt({}, 0);
  const Value* item = reader.Required({});
  std::vector<Value>& items = ItemsOf(self);
  if (!reader.Done() || !runtime.Step(static_cast<int64_t>(items.size() / 8))) return false;
  const auto length = static_cast<int64_t>(items.size());
  const int64_t at = std::clamp<int64_t>(index < 0 ? index + length : index, 0, length);
  items.insert(items.begin() + at, *item);
  *result = Value::None();
  return runtime.Recharge(self);
}

bool ListPop(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "pop", arguments);
  int64_t index = reader.OptionalInt({}, -1);
  std::vector<Value>& items = ItemsOf(self);
  if (!reader.Done() || !runtime.Step(static_cast<int64_t>(items.size() / 8))) return false;
  if (items.empty()) return runtime.Fail("pop from empty list");
  const auto length = static_cast<int64_t>(items.size());
  if (index < 0) index += length;
  if (index < 0 || index >= length) return runtime.Fail("pop index out of range");
  *result = items[static_cast<size_t>(index)];
  items.erase(items.begin() + index);
  return true;
}

bool ListRemove(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  Value index;
  if (!ListIndex(runtime, self, arguments, &index)) return false;
  ItemsOf(self).erase(ItemsOf(self).begin() + index.int_value());
  *result = Value::None();
  return true;
}

bool ListReverse(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "reverse", arguments).Done() ||
      !runtime.Reserve(ItemsOf(self).size() * sizeof(Value))) {
    return false;
  }
  std::reverse(ItemsOf(self).begin(), ItemsOf(self).end());
  *result = Value::None();
  return true;
}

bool ListSort(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "sort", arguments);
  const Value* reverse = arguments.Keyword("reverse");
  if (reverse != nullptr) reader.Optional("reverse");
  if (!reader.Done()) return false;
  const std::vector<Value> keys = ItemsOf(self);
  *result = Value::None();
  return SortByKeys(runtime, keys, reverse != nullptr && Truth(*reverse), &ItemsOf(self));
}

bool ListClear(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "clear", arguments).Done()) return false;
  ItemsOf(self).clear();
  *result = Value::None();
  return true;
}

Value Pair(Runtime& runtime, const Dict::Entry& entry) {
  Value pair = runtime.NewList(Kind::kTuple);
  ItemsOf(pair) = {entry.first, entry.second};
  return pair;
}

template <int kWhat>  // 0 keys, 1 values, 2 items
bool DictView(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  const std::vector<Dict::Entry>& entries = self.as<Dict>().entries;
  if (!ArgumentReader(runtime, "dict view", arguments).Done() ||
      !runtime.Reserve(entries.size() * (sizeof(Value) + (kWhat == 2 ? 128 : 0)))) {
    return false;
  }
  auto* view = runtime.heap().New<List>(Kind::kDictView);
  *result = Value(view);
  view->type_name = kWhat == 0 ? "dict_keys" : kWhat == 1 ? "dict_values" : "dict_items";
  view->items.reserve(entries.size());
  for (const Dict::Entry& entry : entries) {
    view->items.push_back(kWhat == 0   ? entry.first
                          : kWhat == 1 ? entry.second
                                       : Pair(runtime, entry));
  }
  return runtime.Recharge(*result);
}

bool DictGet(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "get", arguments);
  const Value* key = reader.Required({});
  const Value* otherwise = reader.Optional({});
  if (!reader.Done() || !CheckHashable(runtime, *key)) return false;
  const Value* found = self.as<Dict>().Find(*key);
  *result = found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value::None();
  return true;
}

bool DictCopy(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "copy", arguments).Done() ||
      !runtime.Reserve(2 * self.as<Dict>().entries.size() * sizeof(Dict::Entry))) {
    return false;
  }
  *result = runtime.NewDict();
  result->as<Dict>().entries = self.as<Dict>().entries;
  return runtime.Recharge(*result);
}

// A large dict makes its index anew after something was erased.
bool StepErase(Runtime& runtime, const Dict& dict) {
  return runtime.Step(4 * static_cast<int64_t>(dict.entries.size()));
}

bool DictPop(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "pop", arguments);
  const Value* key = reader.Required({});
  const Value* otherwise = reader.Optional({});
  auto& dict = self.as<Dict>();
  if (!reader.Done() || !CheckHashable(runtime, *key) || !StepErase(runtime, dict)) return false;
  const Value* found = dict.Find(*key);
  if (found == nullptr && otherwise == nullptr) return runtime.Fail(ReprForMessage(*key));
  *result = found != nullptr ? *found : *otherwise;
  if (found != nullptr) dict.Erase(*key);
  return true;
}

bool DictPopItem(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  auto& dict = self.as<Dict>();
  if (!ArgumentReader(runtime, "popitem", arguments).Done() || !StepErase(runtime, dict)) {
    return false;
  }
  if (dict.entries.empty()) return runtime.Fail("'popitem(): dictionary is empty'");
  *result = Pair(runtime, dict.entries.back());
  const Value key = dict.entries.back().first;
  dict.Erase(key);
  return true;
}

bool DictSetDefault(Runtime& runtime, const Value& self, const Arguments& arguments,
                    Value* result) {
  ArgumentReader reader(runtime, "setdefault", arguments);
  const Value* key = reader.Required({});
  const Value* otherwise = reader.Optional({});
  if (!reader.Done() || !CheckHashable(runtime, *key)) return false;
  auto& dict = self.as<Dict>();
  if (const Value* found = dict.Find(*key); found != nullptr) {
    *result = *found;
    return true;
  }
  *result = otherwise != nullptr ? *otherwise : Value::None();
  dict.Set(*key, *result);
  return runtime.Recharge(self);
}

bool DictUpdate(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  *result = Value::None();
  return UpdateDict(runtime, "update", arguments, self) && runtime.Recharge(self);
}

bool DictClear(Runtime& runtime, const Value& self, const Arguments& arguments, Value* result) {
  if (!ArgumentReader(runtime, "clear", arguments).Done()) return false;
  self.as<Dict>().Clear();
  *result = Value::None();
  return true;
}

bool FloatIsInteger(Runtime& runtime, const Value& self, const Arguments& arguments,
                    Value* result) {
  if (!ArgumentReader(runtime, "is_integer", arguments).Done()) return false;
  const double value = self.float_value();
  *result = Value::Bool(std::isfinite(value) && value == std::floor(value));
  return true;
}

constexpr Method kListMethods[] = {
    {"append", ListAppend, true},   {"clear", ListClear, true},   {"copy", ListCopy},
    {"count", ListCount},           {"extend", ListExtend, true}, {"index", ListIndex},
    {"insert", ListInsert, true},   {"pop", ListPop, true},       {"remove", ListRemove, true},
    {"reverse", ListReverse, true}, {"sort", ListSort, true},
};
constexpr Method kTupleMethods[] = {{"count", ListCount}, {"index", ListIndex}};
constexpr Method kDictMethods[] = {
    {"clear", DictClear, true},
    {"copy", DictCopy},
    {"get", DictGet},
    {"items", DictView<2>},
    {"keys", DictView<0>},
    {"pop", DictPop, true},
    {"popitem", DictPopItem, true},
    {"setdefault", DictSetDefault, true},
    {"update", DictUpdate, true},
    {"values", DictView<1>},
};
constexpr Method kFloatMethods[] = {{"is_integer", FloatIsInteger}};

}  // namespace

bool UpdateDict(Runtime& runtime, std::string_view function, const Arguments& arguments,
                const Value& target) {
  auto& dict = target.as<Dict>();
  if (arguments.positional.size() > 1) {
    return runtime.Fail(std::string(function) + " expected at most 1 argument, got " +
                        std::to_string(arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value source = arguments.positional[0];
    if (source.is_dict()) {
      const std::vector<Dict::Entry> entries = source.as<Dict>().entries;
      for (const auto& [key, value] : entries) {
        if (!runtime.Step()) return false;
        dict.Set(key, value);
      }
    } else {
      Iteration iteration;
      Value item;
      if (!iteration.Start(runtime, source)) return false;
      while (iteration.Next(runtime, &item)) {
        std::vector<Value> pair;
        if (!Collect(runtime, item, &pair)) return false;
        if (pair.size() != 2) {
          return runtime.Fail("dictionary update sequence element has length " +
                              std::to_string(pair.size()) + "; 2 is required");
        }
        if (!CheckHashable(runtime, pair[0])) return false;
        dict.Set(pair[0], pair[1]);
      }
      if (runtime.failed()) return false;
    }
  }
  for (const auto& [key, value] : arguments.keyword) dict.Set(key, value);
  return runtime.Room(2 * dict.entries.capacity() * sizeof(Dict::Entry));
}

const Method* FindMethod(Kind kind, std::string_view name) {
  std::span<const Method> methods;
  switch (kind) {
    case Kind::kString:
      methods = StringMethods();
      break;
    case Kind::kBytes:
      methods = BytesMethods();
      break;
    case Kind::kList:
      methods = kListMethods;
      break;
    case Kind::kTuple:
      methods = kTupleMethods;
      break;
    case Kind::kDict:
      methods = kDictMethods;
      break;
    case Kind::kFloat:
      methods = kFloatMethods;
      break;
    default:
      return nullptr;
  }
  const auto found = std::lower_bound(
      methods.begin(), methods.end(), name,
      [](const Method& method, std::string_view wanted) { return method.name < wanted; });
  return found != methods.end() && found->name == name ? &*found : nullptr;
}

}  // namespace polysil::jinja

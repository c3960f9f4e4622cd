// Attributes, items, slices, calls.
#include <algorithm>

#include "text/jinja/functions.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {
namespace {

// A method together with the value it belongs to.
struct BoundMethod final : Callable {
  BoundMethod(Value value, const Method& which) : self(std::move(value)), method(which) {}
  void Clear() override { self = Value(); }
  bool Call(Runtime& runtime, const Arguments& arguments, Value* result) override {
    return method.function(runtime, self, arguments, result);
  }
  std::string Describe() const override {
    return "<built-in method " + std::string(method.name) + " of " + TypeName(self) + " object>";
  }
  Value self;
  const Method& method;
};

// What every Python object has; the sandbox hands out none of it.
bool IsObjectAttribute(std::string_view name) {
  static constexpr std::string_view kNames[] = {"__add__",
                                                "__class__",
                                                "__class_getitem__",
                                                "__contains__",
                                                "__delattr__",
                                                "__delitem__",
                                                "__dir__",
                                                "__doc__",
                                                "__eq__",
                                                "__format__",
                                                "__ge__",
                                                "__getattribute__",
                                                "__getitem__",
                                                "__getnewargs__",
                                                "__getstate__",
                                                "__gt__",
                                                "__hash__",
                                                "__init__",
                                                "__init_subclass__",
                                                "__ior__",
                                                "__iter__",
                                                "__le__",
                                                "__len__",
                                                "__lt__",
                                                "__mod__",
                                                "__mul__",
                                                "__ne__",
                                                "__new__",
                                                "__or__",
                                                "__reduce__",
                                                "__reduce_ex__",
                                                "__repr__",
                                                "__reversed__",
                                                "__rmod__",
                                                "__rmul__",
                                                "__ror__",
                                                "__setattr__",
                                                "__setitem__",
                                                "__sizeof__",
                                                "__str__",
                                                "__subclasshook__"};
  return std::binary_search(std::begin(kNames), std::end(kNames), name);
}

// As Jinja names the type of what lacks a member.
std::string ObjectType(const Value& value) {
  return value.is_none() ? "None" : TypeName(value) + " object";
}

Value MissingMember(Runtime& runtime, const Value& base, const Value& key) {
  return runtime.NewUndefined(Undefined::Reason::kMember, ObjectType(base), key);
}

// The element at an index counted from either end, or false.
bool Element(Runtime& runtime, const Value& base, int64_t index, Value* result) {
  if (base.is_string()) {
    const Text& text = base.as<String>().text;
    if (!runtime.StepScan(index < 0 ? text.size()
                                    : std::min(text.size(), 4 * static_cast<size_t>(index)))) {
      return false;
    }
    if (index < 0) index += static_cast<int64_t>(CountCodePoints(text.view()));
    if (index < 0) return false;
    const size_t begin = OffsetOf(text.view(), static_cast<size_t>(index));
    if (begin >= text.size()) return false;
    const size_t end = begin + DecodeAt(text.view(), begin).bytes;
    *result = runtime.NewString(text.Slice(begin, end), base.as<String>().markup);
    return true;
  }
  if (base.is(Kind::kRange)) {
    const auto& range = base.as<Range>();
    if (index < 0) index += range.length();
    if (index < 0 || index >= range.length()) return false;
    *result = Value::Int(range.start + index * range.step);
    return true;
  }
  if (!base.is_sequence()) return false;
  const std::vector<Value>& items = base.as<List>().items;
  if (index < 0) index += static_cast<int64_t>(items.size());
  if (index < 0 || index >= static_cast<int64_t>(items.size())) return false;
  *result = items[static_cast<size_t>(index)];
  return true;
}

// obj[key] alone: false where Python raises TypeError or LookupError, or on an error of ours.
bool Subscript(Runtime& runtime, const Value& base, const Value& key, Value* result) {
  if (base.is_dict()) {
    if (key.is(Kind::kList) || key.is(Kind::kDict) || key.is(Kind::kDictView)) return false;
    if (key.is(Kind::kTuple) && !CheckHashable(runtime, key)) return false;
    const Value* found = base.as<Dict>().Find(key);
    if (found != nullptr) *result = *found;
    return found != nullptr;
  }
  const std::optional<int64_t> index = ToInt64(key);
  return index && Element(runtime, base, *index, result);
}

bool GroupField(const Value& base, std::string_view name, Value* result) {
  if (!base.is(Kind::kTuple) || !base.as<List>().group) return false;
  if (name != "grouper" && name != "list") return false;
  *result = base.as<List>().items[name == "list" ? 1 : 0];
  return true;
}

struct SliceBounds {
  int64_t start;
  int64_t stop;
  int64_t step;
};

bool SliceIndex(Runtime& runtime, const Value& value, int64_t otherwise, int64_t* index) {
  *index = otherwise;
  if (value.is_none()) return true;
  if (value.is(Kind::kBigInt)) {
    *index = IsNegative(value) ? INT64_MIN / 2 : INT64_MAX / 2;
    return true;
  }
  const std::optional<int64_t> number = ToInt64(value);
  if (!number) {
    return runtime.Fail("slice indices must be integers or None or have an __index__ method");
  }
  *index = std::clamp(*number, INT64_MIN / 2, INT64_MAX / 2);
  return true;
}

bool ResolveBounds(Runtime& runtime, const Value& start, const Value& stop, const Value& step,
                   int64_t length, SliceBounds* bounds) {
  if (!SliceIndex(runtime, step, 1, &bounds->step)) return false;
  if (bounds->step == 0) return runtime.Fail("slice step cannot be zero");
  const bool forward = bounds->step > 0;
  const int64_t lowest = forward ? 0 : -1;
  const int64_t highest = forward ? length : length - 1;
  const auto resolve = [&](const Value& value, int64_t otherwise, int64_t* index) {
    if (!SliceIndex(runtime, value, otherwise, index)) return false;
    if (!value.is_none()) {
      if (*index < 0) *index += length;
      *index = std::clamp(*index, lowest, highest);
    }
    return true;
  };
  return resolve(start, forward ? lowest : highest, &bounds->start) &&
         resolve(stop, forward ? highest : lowest, &bounds->stop);
}

int64_t SliceCount(const SliceBounds& bounds) {
  return Range(bounds.start, bounds.stop, bounds.step).length();
}

bool SliceString(Runtime& runtime, const Value& base, const SliceBounds& bounds, Value* result) {
  const Text& text = base.as<String>().text;
  const bool markup = base.as<String>().markup;
  if (bounds.step == 1) {
    const size_t begin = OffsetOf(text.view(), static_cast<size_t>(bounds.start));
    const int64_t count = SliceCount(bounds);
    const size_t end = begin + OffsetOf(text.view().substr(begin), static_cast<size_t>(count));
    *result = runtime.NewString(text.Slice(begin, end), markup);
    return true;
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += DecodeAt(text.view(), at).bytes) {
    offsets.push_back(at);
  }
  offsets.push_back(text.size());
  Text picked;
  const int64_t count = SliceCount(bounds);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(bounds.start + i * bounds.step);
    picked.Append(text, offsets[at], offsets[at + 1]);
  }
  *result = runtime.NewString(std::move(picked), markup);
  return true;
}

}  // namespace

bool GetOnlyAttribute(Runtime& runtime, const Value& base, const Value& name, bool* found,
                      Value* result) {
  const std::string& text = name.as<String>().bytes();
  *found = true;
  if (base.is(Kind::kNamespace)) {
    const Value* value = base.as<Dict>().Find(name);
    *found = value != nullptr;
    if (*found) *result = *value;
  } else if (base.is(Kind::kCallable) || base.is(Kind::kLoop)) {
    *found = base.as<Callable>().Attribute(runtime, text, result);
    if (runtime.failed()) return false;
  } else if (const Method* method = FindMethod(base.kind(), text); method != nullptr) {
    if (method->mutates && !runtime.serving()) {
      *result = runtime.NewUndefined(Undefined::Reason::kUnsafe, TypeName(base), name);
    } else {
      *result = Value(runtime.heap().New<BoundMethod>(base, *method));
    }
    return true;
  } else {
    *found = GroupField(base, text, result);
  }
  if (!*found && IsObjectAttribute(text)) {
    *found = true;
    *result = runtime.NewUndefined(Undefined::Reason::kUnsafe, TypeName(base), name);
  }
  return true;
}

bool GetAttribute(Runtime& runtime, const Value& base, const Value& name, Value* result) {
  if (base.is_undefined()) return runtime.FailUndefined(base);
  bool found = false;
  if (!GetOnlyAttribute(runtime, base, name, &found, result)) return false;
  if (found) return true;
  if (Subscript(runtime, base, name, result)) return true;
  if (runtime.failed()) return false;
  *result = MissingMember(runtime, base, name);
  return true;
}

bool GetItem(Runtime& runtime, const Value& base, const Value& key, Value* result) {
  if (base.is_undefined()) return runtime.FailUndefined(base);
  if (Subscript(runtime, base, key, result)) return true;
  if (runtime.failed()) return false;
  if (key.is_string()) {
    bool found = false;
    if (!GetOnlyAttribute(runtime, base, key, &found, result)) return false;
    if (found) return true;
  }
  *result = MissingMember(runtime, base, key);
  return true;
}

bool GetSlice(Runtime& runtime, const Value& base, const Value& start, const Value& stop,
              const Value& step, Value* result) {
  if (base.is_undefined()) return runtime.FailUndefined(base);
  SliceBounds bounds{};
  if (base.is_string()) {
    const Text& text = base.as<String>().text;
    if (!runtime.StepScan(text.size())) return false;
    const auto length = static_cast<int64_t>(CountCodePoints(text.view()));
    return ResolveBounds(runtime, start, stop, step, length, &bounds) &&
           SliceString(runtime, base, bounds, result);
  }
  if (base.is(Kind::kRange)) {
    const auto& range = base.as<Range>();
    if (!ResolveBounds(runtime, start, stop, step, range.length(), &bounds)) return false;
    *result = Value(runtime.heap().New<Range>(range.start + bounds.start * range.step,
                                              range.start + bounds.stop * range.step,
                                              range.step * bounds.step));
    return true;
  }
  if (base.is_dict()) return runtime.Fail("unhashable type: 'slice'");
  if (!base.is_sequence()) {
    return runtime.Fail("'" + TypeName(base) + "' object is not subscriptable");
  }
  const std::vector<Value>& items = base.as<List>().items;
  if (!ResolveBounds(runtime, start, stop, step, static_cast<int64_t>(items.size()), &bounds)) {
    return false;
  }
  const int64_t count = SliceCount(bounds);
  if (!runtime.Reserve(static_cast<size_t>(count) * sizeof(Value))) return false;
  *result = runtime.NewList(base.kind());
  std::vector<Value>& picked = result->as<List>().items;
  picked.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    picked.push_back(items[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return runtime.Recharge(*result);
}

bool CallValue(Runtime& runtime, const Value& callee, const Arguments& arguments, Value* result) {
  if (callee.is_undefined()) return runtime.FailUndefined(callee);
  if (!callee.is(Kind::kCallable) && !callee.is(Kind::kLoop)) {
    return runtime.Fail("'" + TypeName(callee) + "' object is not callable");
  }
  return callee.as<Callable>().Call(runtime, arguments, result);
}

bool LookupPath(Runtime& runtime, const Value& item, const Value& path, const Value* otherwise,
                Value* result) {
  *result = item;
  const auto step = [&](const Value& key) {
    Value next;
    if (!runtime.Step() || !GetItem(runtime, *result, key, &next)) return false;
    *result = std::move(next);
    if (otherwise != nullptr && !otherwise->is_none() && result->is_undefined()) {
      *result = *otherwise;
    }
    return true;
  };
  if (path.is_none()) return true;
  if (!path.is_string()) return step(path);
  std::string_view rest = path.as<String>().bytes();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    if (!step(number ? ParseDecimal(runtime.heap(), part.substr(0, 19), false)
                     : runtime.NewString(part))) {
      return false;
    }
    if (dot == std::string_view::npos) return true;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace polysil::jinja

// Types, truth, length, iteration.
#include <utility>

#include "text/jinja/functions.h"
#include "text/jinja/operations.h"
#include "text/jinja/unicode.h"

namespace polysil::jinja {

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.as<String>().markup ? "Markup" : "str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
    case Kind::kGenerator:
      return value.as<List>().type_name;
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCallable:
      return value.as<Callable>().PythonType();
    case Kind::kScope:
      return "scope";
  }
  return {};
}

std::string UndefinedMessage(const Value& value) {
  if (value.object() == nullptr) return "a value is undefined";
  const auto& undefined = value.as<Undefined>();
  const std::string name = ReprForMessage(undefined.name);
  switch (undefined.reason) {
    case Undefined::Reason::kName:
      return name + " is undefined";
    case Undefined::Reason::kMember:
      return undefined.name.is_string() ? "'" + undefined.type + "' has no attribute " + name
                                        : undefined.type + " has no element " + name;
    case Undefined::Reason::kText:
      return undefined.type;
    case Undefined::Reason::kUnsafe:
      return "access to attribute " + name + " of '" + undefined.type + "' object is unsafe.";
  }
  return {};
}

bool Truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.bool_value();
    case Kind::kInt:
      return value.int_value() != 0;
    case Kind::kFloat:
      return value.float_value() != 0;
    case Kind::kBigInt:
      return true;
    case Kind::kString:
      return !value.as<String>().text.empty();
    case Kind::kBytes:
      return !value.as<Bytes>().text.empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDictView:
      return !value.as<List>().items.empty();
    case Kind::kDict:
      return !value.as<Dict>().entries.empty();
    case Kind::kRange:
      return value.as<Range>().length() > 0;
    case Kind::kGenerator:
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable:
    case Kind::kScope:
      return true;
  }
  return false;
}

bool Same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return a.bool_value() == b.bool_value();
    case Kind::kInt:
      return a.int_value() == b.int_value();
    case Kind::kFloat:
      return false;
    case Kind::kString:
      return a.as<String>().bytes() == b.as<String>().bytes();
    default:
      return a.object() == b.object();
  }
}

bool CheckHashable(Runtime& runtime, const Value& key) {
  switch (key.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kDictView:
      return runtime.Fail("unhashable type: '" + TypeName(key) + "'");
    case Kind::kTuple: {
      const DepthGuard guard(runtime);
      if (!guard.ok()) return false;
      for (const Value& item : key.as<List>().items) {
        if (!runtime.Step() || !CheckHashable(runtime, item)) return false;
      }
      return true;
    }
    default:
      return true;
  }
}

std::optional<int64_t> Length(const Value& value, std::string* error) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CountCodePoints(value.as<String>().bytes()));
    case Kind::kBytes:
      return static_cast<int64_t>(value.as<Bytes>().text.size());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDictView:
      return static_cast<int64_t>(value.as<List>().items.size());
    case Kind::kDict:
      return static_cast<int64_t>(value.as<Dict>().entries.size());
    case Kind::kRange:
      return value.as<Range>().length();
    default:
      *error = "object of type '" + TypeName(value) + "' has no len()";
      return std::nullopt;
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kBytes:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kGenerator:
    case Kind::kRange:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

bool Iteration::Start(Runtime& runtime, Value value) {
  if (!IsIterable(value) || value.is(Kind::kLoop)) {
    return runtime.Fail("'" + TypeName(value) + "' object is not iterable");
  }
  if (value.is_undefined() && value.object() != nullptr &&
      value.as<Undefined>().reason == Undefined::Reason::kUnsafe) {
    value = Value();
  }
  if (value.is_dict()) size_at_start_ = value.as<Dict>().entries.size();
  value_ = std::move(value);
  position_ = 0;
  return true;
}

bool Iteration::Next(Runtime& runtime, Value* item) {
  if (!runtime.Step()) return false;
  switch (value_.kind()) {
    case Kind::kString: {
      const Text& text = value_.as<String>().text;
      if (position_ >= text.size()) return false;
      const size_t end = position_ + DecodeAt(text.view(), position_).bytes;
      *item = runtime.NewString(text.Slice(position_, end));
      position_ = end;
      return runtime.Room(0);
    }
    case Kind::kBytes: {
      const Text& text = value_.as<Bytes>().text;
      if (position_ >= text.size()) return false;
      *item =
          Value::Int(static_cast<unsigned char>(text.bytes()[position_++]), text.any_untrusted());
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDictView: {
      const std::vector<Value>& items = value_.as<List>().items;
      if (position_ >= items.size()) return false;
      *item = items[position_++];
      return true;
    }
    case Kind::kGenerator: {
      auto& generator = value_.as<List>();
      if (generator.cursor >= generator.items.size()) {
        if (!generator.error.empty()) runtime.Fail(std::exchange(generator.error, {}));
        return false;
      }
      *item = generator.items[generator.cursor++];
      return true;
    }
    case Kind::kDict: {
      const auto& dict = value_.as<Dict>();
      if (dict.entries.size() != size_at_start_) {
        return runtime.Fail("dictionary changed size during iteration");
      }
      if (position_ >= dict.entries.size()) return false;
      *item = dict.entries[position_++].first;
      return true;
    }
    case Kind::kRange: {
      const auto& range = value_.as<Range>();
      if (static_cast<int64_t>(position_) >= range.length()) return false;
      *item = Value::Int(range.start + static_cast<int64_t>(position_++) * range.step);
      return true;
    }
    default:
      return false;
  }
}

bool Collect(Runtime& runtime, const Value& iterable, std::vector<Value>* items) {
  Iteration iteration;
  if (!iteration.Start(runtime, iterable)) return false;
  Value item;
  while (iteration.Next(runtime, &item)) {
    items->push_back(item);
    if (!runtime.Room(items->capacity() * sizeof(Value))) return false;
  }
  return !runtime.failed();
}

}  // namespace polysil::jinja

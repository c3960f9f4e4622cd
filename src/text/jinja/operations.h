// What Python's operators and built-in functions do to values: truth, comparison, containment,
// iteration, subscripts, text. Failing functions return false and leave the error in the Runtime.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/number.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace polysil::jinja {

// type(value).__name__.
std::string TypeName(const Value& value);
std::string UndefinedMessage(const Value& undefined);

bool Truth(const Value& value);
// ==. False only on error.
bool Equal(Runtime& runtime, const Value& a, const Value& b, bool* equal);
// a < b where `order` is "<", and so on.
bool Compare(Runtime& runtime, std::string_view order, const Value& a, const Value& b,
             bool* result);
// Sorts as sorted() does by keys[i] of items[i].
bool SortByKeys(Runtime& runtime, const std::vector<Value>& keys, bool reverse,
                std::vector<Value>* items);
// `item in container`.
bool Contains(Runtime& runtime, const Value& container, const Value& item, bool* contains);
// `is`.
bool Same(const Value& a, const Value& b);
// Whether the value may be a key of a dict; an error otherwise.
bool CheckHashable(Runtime& runtime, const Value& key);

bool ApplyArithmetic(Runtime& runtime, Arithmetic operation, const Value& a, const Value& b,
                     Value* result);
// a + b, where `a` may be changed in place if nothing else refers to it.
bool Add(Runtime& runtime, Value a, const Value& b, Value* result);

// len(): nothing where the value has none (then *error is Python's message).
std::optional<int64_t> Length(const Value& value, std::string* error);
bool IsIterable(const Value& value);

// One pass over a value. Holds a reference to it.
class Iteration final {
 public:
  // False and a TypeError where the value cannot be iterated.
  bool Start(Runtime& runtime, Value value);
  // False at the end, and on an error.
  bool Next(Runtime& runtime, Value* item);

 private:
  Value value_;
  size_t position_ = 0;
  size_t size_at_start_ = 0;
};
// All items, as list().
bool Collect(Runtime& runtime, const Value& iterable, std::vector<Value>* items);

// a.b: attribute first, then item. `name` must be a string.
bool GetAttribute(Runtime& runtime, const Value& base, const Value& name, Value* result);
// The attribute alone; undefined where there is none.
bool GetOnlyAttribute(Runtime& runtime, const Value& base, const Value& name, bool* found,
                      Value* result);
// a[b]: item first, then attribute.
bool GetItem(Runtime& runtime, const Value& base, const Value& key, Value* result);
// a[start:stop:step]; a bound that is none was left out.
bool GetSlice(Runtime& runtime, const Value& base, const Value& start, const Value& stop,
              const Value& step, Value* result);
bool CallValue(Runtime& runtime, const Value& callee, const Arguments& arguments, Value* result);

// str(). Appends to `out`.
bool AppendStr(Runtime& runtime, const Value& value, Text* out);
bool AppendRepr(Runtime& runtime, const Value& value, Text* out);
// str() as a value; a string stays the one it is (soft_str).
bool ToString(Runtime& runtime, const Value& value, Value* result);
// For messages: short, never fails.
std::string ReprForMessage(const Value& value);
// HTML-escaped, as MarkupSafe does; a markup value stays as it is.
bool AppendEscaped(Runtime& runtime, const Value& value, Text* out);

// The attribute of every item that map(attribute="a.b") and the like look up.
bool LookupPath(Runtime& runtime, const Value& item, const Value& path, const Value* otherwise,
                Value* result);

struct JsonFormat {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool generators = false;     // print a generator as a list instead of failing
  std::optional<Text> indent;  // of one level
  Text item_separator = Text::Trusted(", ");
  Text key_separator = Text::Trusted(": ");
};
// json.dumps.
bool AppendJson(Runtime& runtime, const Value& value, const JsonFormat& format, Text* out);
// json.loads; strings and numbers are marked `untrusted`.
bool ParseJson(Runtime& runtime, std::string_view text, bool untrusted, Value* result);

}  // namespace polysil::jinja

// The tables of filters, tests, methods and global functions: what a name in a template stands for.
// Every function takes its arguments as Python would and fails with Python's words. Static tables,
// any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace polysil::jinja {

class Runtime;

// The arguments of one call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> keyword;  // name (a string), value

  const Value* Keyword(std::string_view name) const;
};

// Binds arguments to parameters by position, then by name. Every method of it may be called once an
// error was met; Done() says whether there was one.
class ArgumentReader final {
 public:
  // `function`: its name for messages.
  ArgumentReader(Runtime& runtime, std::string_view function, const Arguments& arguments)
      : runtime_(runtime), function_(function), arguments_(arguments) {}

  // The next parameter, or null where it was not given.
  const Value* Optional(std::string_view name);
  // The same; an error where it was not given.
  const Value* Required(std::string_view name);
  bool OptionalBool(std::string_view name, bool otherwise);
  int64_t OptionalInt(std::string_view name, int64_t otherwise);
  int64_t RequiredInt(std::string_view name);
  // False where an argument is left over, or was missing or of a wrong type.
  [[nodiscard]] bool Done();

 private:
  Runtime& runtime_;
  std::string_view function_;
  const Arguments& arguments_;
  size_t position_ = 0;
  size_t keywords_used_ = 0;
  bool failed_ = false;

  int64_t ToInt(const Value& value);
};

using FilterFunction = bool (*)(Runtime&, const Value& input, const Arguments&, Value* result);
struct Filter {
  std::string_view name;
  FilterFunction function;
  bool extension = false;  // not in the reference: available in the serving dialect only
};
const Filter* FindFilter(std::string_view name);

using TestFunction = bool (*)(Runtime&, const Value& input, const Arguments&, bool* result);
struct Test {
  std::string_view name;
  TestFunction function;
};
const Test* FindTest(std::string_view name);

using MethodFunction = bool (*)(Runtime&, const Value& self, const Arguments&, Value* result);
struct Method {
  std::string_view name;
  MethodFunction function;
  bool mutates = false;  // refused in the reference dialect
};
// The method of a value of this kind, or null.
const Method* FindMethod(Kind kind, std::string_view name);

using GlobalFunction = bool (*)(Runtime&, const Arguments&, Value* result);
struct Global {
  std::string_view name;
  GlobalFunction function;
};
const Global* FindGlobal(std::string_view name);

// What dict(...) and dict.update(...) do with their arguments.
bool UpdateDict(Runtime& runtime, std::string_view function, const Arguments& arguments,
                const Value& target);

}  // namespace polysil::jinja

// The functions that every template may call.
#include <algorithm>
#include <ctime>

#include "text/jinja/functions.h"
#include "text/jinja/macro.h"
#include "text/jinja/operations.h"

namespace polysil::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;

bool MakeRange(Runtime& runtime, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "range", arguments);
  int64_t start = 0;
  int64_t stop = reader.RequiredInt({});
  int64_t step = 1;
  if (arguments.positional.size() > 1) {
    start = stop;
    stop = reader.OptionalInt({}, 0);
    step = reader.OptionalInt({}, 1);
  }
  if (!reader.Done()) return false;
  if (step == 0) return runtime.Fail("range() arg 3 must not be zero");
  auto* range = runtime.heap().New<Range>(start, stop, step);
  *result = Value(range);
  if (range->length() > kRangeMax) {
    return runtime.Fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                        std::to_string(kRangeMax) + ").");
  }
  return true;
}

bool MakeDict(Runtime& runtime, const Arguments& arguments, Value* result) {
  *result = runtime.NewDict();
  return UpdateDict(runtime, "dict", arguments, *result) && runtime.Recharge(*result);
}

bool MakeNamespace(Runtime& runtime, const Arguments& arguments, Value* result) {
  auto* object = runtime.heap().New<Dict>(Kind::kNamespace);
  *result = Value(object);
  if (!UpdateDict(runtime, "namespace", arguments, *result)) return false;
  for (const auto& [name, value] : object->entries) {
    if (name.is_string() && name.as<String>().bytes().starts_with('_')) {
      return FailUnderscore(runtime, name);
    }
  }
  return runtime.Recharge(*result);
}

bool RaiseException(Runtime& runtime, const Arguments& arguments, Value*) {
  ArgumentReader reader(runtime, "raise_exception", arguments);
  const Value* message = reader.Required("message");
  Text text;
  if (!reader.Done() || !AppendStr(runtime, *message, &text)) return false;
  return runtime.Raise(text.bytes());
}

// Python leaves out what a time without a zone does not have, and gives the rest to the C library.
std::string PythonFormat(std::string_view format) {
  std::string result;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      result.push_back(format[i]);
      continue;
    }
    const char code = format[++i];
    if (code == 'f') {
      result += "000000";
    } else if (code != 'z' && code != 'Z') {
      result += {'%', code};
    }
  }
  return result;
}

bool StrftimeNow(Runtime& runtime, const Arguments& arguments, Value* result) {
  constexpr size_t kFormatBytesMax = 1024;
  ArgumentReader reader(runtime, "strftime_now", arguments);
  const Value* format = reader.Required("format");
  if (!reader.Done()) return false;
  if (!format->is_string()) {
    return runtime.Fail("strftime() argument 1 must be str, not " + TypeName(*format));
  }
  const Text& text = format->as<String>().text;
  if (text.size() > kFormatBytesMax) return runtime.Fail("the format of strftime_now is too long");
  const std::string c_format = PythonFormat(text.bytes());
  std::string buffer(64 * (c_format.size() + 1), '\0');
  buffer.resize(std::strftime(buffer.data(), buffer.size(), c_format.c_str(), &runtime.now()));
  *result = runtime.NewString(Text(std::move(buffer), text.any_untrusted()));
  return true;
}

// joiner(", ")(): nothing the first time, the separator from then on.
struct Joiner final : Callable {
  explicit Joiner(Value text) : separator(std::move(text)) {}
  void Clear() override { separator = Value(); }
  bool Call(Runtime& runtime, const Arguments& arguments, Value* result) override {
    *result = used ? separator : runtime.NewString("");
    used = true;
    return ArgumentReader(runtime, "joiner", arguments).Done();
  }
  std::string Describe() const override { return "<jinja2.utils.Joiner object>"; }
  const char* PythonType() const override { return "Joiner"; }
  Value separator;
  bool used = false;
};

bool MakeJoiner(Runtime& runtime, const Arguments& arguments, Value* result) {
  ArgumentReader reader(runtime, "joiner", arguments);
  const Value* separator = reader.Optional("sep");
  if (!reader.Done()) return false;
  *result = Value(
      runtime.heap().New<Joiner>(separator != nullptr ? *separator : runtime.NewString(", ")));
  return true;
}

struct Cycler final : Callable {
  void Clear() override { items.clear(); }
  bool Call(Runtime& runtime, const Arguments&, Value*) override {
    return runtime.Fail("'Cycler' object is not callable");
  }
  bool Attribute(Runtime& runtime, std::string_view name, Value* result) override;
  std::string Describe() const override { return "<jinja2.utils.Cycler object>"; }
  const char* PythonType() const override { return "Cycler"; }
  std::vector<Value> items;
  size_t position = 0;
};

struct CyclerMethod final : Callable {
  CyclerMethod(Value of, bool is_next) : cycler(std::move(of)), next(is_next) {}
  void Clear() override { cycler = Value(); }
  bool Call(Runtime& runtime, const Arguments& arguments, Value* result) override {
    auto& target = cycler.as<Cycler>();
    *result = next ? target.items[target.position] : Value::None();
    target.position = next ? (target.position + 1) % target.items.size() : 0;
    return ArgumentReader(runtime, "cycler", arguments).Done();
  }
  std::string Describe() const override { return "<bound method Cycler>"; }
  const char* PythonType() const override { return "method"; }
  Value cycler;
  bool next;
};

bool Cycler::Attribute(Runtime& runtime, std::string_view name, Value* result) {
  if (name == "current") {
    *result = items[position];
  } else if (name == "next" || name == "reset") {
    *result = Value(runtime.heap().New<CyclerMethod>(Value(this), name == "next"));
  } else {
    return false;
  }
  return true;
}

bool MakeCycler(Runtime& runtime, const Arguments& arguments, Value* result) {
  if (!arguments.keyword.empty()) {
    return runtime.Fail("cycler() got an unexpected keyword argument");
  }
  if (arguments.positional.empty()) return runtime.Fail("at least one item has to be provided");
  auto* cycler = runtime.heap().New<Cycler>();
  *result = Value(cycler);
  cycler->items = arguments.positional;
  return true;
}

// Null: exists, but cannot be called here.
constexpr Global kGlobals[] = {
    {"cycler", MakeCycler},        {"dict", MakeDict},
    {"joiner", MakeJoiner},        {"lipsum", nullptr},
    {"namespace", MakeNamespace},  {"raise_exception", RaiseException},
    {"range", MakeRange},          {"self", nullptr},
    {"strftime_now", StrftimeNow},
};

}  // namespace

const Global* FindGlobal(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [name](const Global& global) { return global.name == name; });
  return found != std::end(kGlobals) ? found : nullptr;
}

}  // namespace polysil::jinja

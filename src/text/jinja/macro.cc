#include "text/jinja/macro.h"

#include "text/jinja/operations.h"

namespace polysil::jinja {

bool Macro::Has(int32_t id) const {
  for (const auto& [parameter, name] : signature_.parameters) {
    if (parameter == id) return true;
  }
  return false;
}

bool Macro::Bind(Runtime& runtime, const Arguments& arguments, Scope* scope,
                 std::vector<bool>* used) {
  const size_t count = signature_.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const auto& [id, name] = signature_.parameters[i];
    if (i < arguments.positional.size()) {
      scope->Set(id, arguments.positional[i]);
      continue;
    }
    bool found = false;
    for (size_t k = 0; k < arguments.keyword.size() && !found; ++k) {
      found = arguments.keyword[k].first.as<String>().bytes() == name->text();
      if (found) {
        scope->Set(id, arguments.keyword[k].second);
        (*used)[k] = true;
      }
    }
    if (found) continue;
    // Defaults may refer to the parameters before them.
    const size_t without_default = count - signature_.defaults.size();
    Value value;
    if (i < without_default) {
      value = runtime.NewUndefined("parameter '" + name->text() + "' was not provided");
    } else if (!interpreter_.EvalIn(*signature_.defaults[i - without_default], Value(scope),
                                    &value)) {
      return false;
    }
    scope->Set(id, std::move(value));
  }
  return true;
}

bool Macro::BindSpecial(Runtime& runtime, const Arguments& arguments, const std::vector<bool>& used,
                        Scope* scope) {
  Value kwargs = runtime.NewDict();
  Value caller;
  bool has_caller = false;
  for (size_t k = 0; k < arguments.keyword.size(); ++k) {
    const auto& [name, value] = arguments.keyword[k];
    if (used[k]) continue;
    const std::string& text = name.as<String>().bytes();
    if (text == "caller" && signature_.takes_caller && !Has(kCallerId)) {
      caller = value;
      has_caller = true;
    } else if (signature_.takes_kwargs) {
      kwargs.as<Dict>().Set(name, value);
    } else if (text == "caller") {
      return runtime.Fail("macro '" + signature_.name +
                          "' was invoked with two values for the special caller argument. This is "
                          "most likely a bug.");
    } else {
      return runtime.Fail("macro '" + signature_.name + "' takes no keyword argument " +
                          ReprForMessage(name));
    }
  }
  if (signature_.takes_caller && !Has(kCallerId)) {
    scope->Set(kCallerId, has_caller ? caller : runtime.NewUndefined("No caller defined"));
  }
  if (signature_.takes_kwargs && !Has(kKwargsId)) scope->Set(kKwargsId, std::move(kwargs));
  const size_t count = signature_.parameters.size();
  if (signature_.takes_varargs && !Has(kVarargsId)) {
    Value varargs = runtime.NewList(Kind::kTuple);
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      varargs.as<List>().items.push_back(arguments.positional[i]);
    }
    scope->Set(kVarargsId, std::move(varargs));
  } else if (arguments.positional.size() > count) {
    return runtime.Fail("macro '" + signature_.name + "' takes not more than " +
                        std::to_string(count) + " argument(s)");
  }
  return true;
}

bool Macro::Call(Runtime& runtime, const Arguments& arguments, Value* result) {
  auto* scope = runtime.heap().New<Scope>(scope_);
  Value holder(scope);
  std::vector<bool> used(arguments.keyword.size(), false);
  return Bind(runtime, arguments, scope, &used) && BindSpecial(runtime, arguments, used, scope) &&
         interpreter_.RunBody(signature_.body, std::move(holder), result);
}

bool Macro::Attribute(Runtime& runtime, std::string_view name, Value* result) {
  if (name == "name") {
    *result = runtime.NewString(signature_.name);
  } else if (name == "arguments") {
    *result = runtime.NewList(Kind::kTuple);
    for (const auto& [id, literal] : signature_.parameters) {
      result->as<List>().items.push_back(literal->value);
    }
  } else if (name == "catch_kwargs" || name == "catch_varargs" || name == "caller") {
    *result = Value::Bool(name == "caller"         ? signature_.takes_caller
                          : name == "catch_kwargs" ? signature_.takes_kwargs
                                                   : signature_.takes_varargs);
  } else {
    return false;
  }
  return true;
}

std::string Macro::Describe() const {
  return signature_.name.empty() ? "<Macro anonymous>" : "<Macro '" + signature_.name + "'>";
}

bool GlobalCallable::Call(Runtime& runtime, const Arguments& arguments, Value* result) {
  if (global.function == nullptr) {
    return runtime.Fail("'" + std::string(global.name) + "' is not available in chat templates");
  }
  return global.function(runtime, arguments, result);
}

std::string GlobalCallable::Describe() const {
  if (global.name == "self") return "<TemplateReference None>";
  if (global.name == "range" || global.name == "strftime_now" || global.name == "raise_exception") {
    return "<function " + std::string(global.name) + ">";
  }
  return "<class '" + std::string(global.name) + "'>";
}

bool FailUnderscore(Runtime& runtime, const Value& name) {
  return runtime.Fail(
      "Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
      ReprForMessage(name) + ". Please rename the attribute.");
}

bool FailUnderscore(Runtime& runtime, const Literal& name) {
  return FailUnderscore(runtime, name.value);
}

}  // namespace polysil::jinja

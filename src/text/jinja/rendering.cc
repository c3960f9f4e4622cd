#include "text/jinja/rendering.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

#include "text/jinja/interpreter.h"
#include "text/jinja/number.h"

namespace polysil::jinja {

Rendering::Rendering(const Ast& ast, Dialect dialect, const RenderLimits& limits,
                     const std::tm& now)
    : ast_(ast), runtime_(dialect, limits, now), variables_(runtime_.NewDict()) {}

void Rendering::SetVariable(std::string_view name, Value value) {
  variables_.as<Dict>().Set(runtime_.NewString(name), std::move(value));
}

StatusOr<Text> Rendering::Run() {
  RETURN_IF_ERROR(error());
  runtime_.GrowBudget(runtime_.heap().bytes());
  Text out;
  Interpreter interpreter(ast_, runtime_);
  const bool ok = interpreter.Run(variables_.as<Dict>(), &out);
  if (ok && !runtime_.failed()) return out;
  if (runtime_.raised()) return InvalidArgument("{}", runtime_.error());
  return InvalidArgument("chat template, line {}: {}", interpreter.error_line(), runtime_.error());
}

Status Rendering::error() const {
  if (!runtime_.failed()) return OkStatus();
  return InvalidArgument("{}", runtime_.error());
}

bool FromJson(Runtime& runtime, const boost::json::value& json, bool untrusted, Value* result) {
  if (!runtime.Step()) return false;
  switch (json.kind()) {
    case boost::json::kind::null:
      *result = Value::None();
      return true;
    case boost::json::kind::bool_:
      *result = Value::Bool(json.get_bool(), untrusted);
      return true;
    case boost::json::kind::int64:
      *result = Value::Int(json.get_int64(), untrusted);
      return true;
    case boost::json::kind::uint64:
      *result = ParseDecimal(runtime.heap(), std::to_string(json.get_uint64()), false);
      result->set_tainted(untrusted);
      return true;
    case boost::json::kind::double_:
      *result = Value::Float(json.get_double(), untrusted);
      return true;
    case boost::json::kind::string: {
      const boost::json::string& text = json.get_string();
      if (!runtime.Reserve(text.size())) return false;
      *result = runtime.NewString(Text(std::string(text.data(), text.size()), untrusted));
      return true;
    }
    case boost::json::kind::array: {
      const DepthGuard guard(runtime);
      if (!guard.ok()) return false;
      *result = runtime.NewList();
      std::vector<Value>& items = result->as<List>().items;
      items.reserve(json.get_array().size());
      for (const boost::json::value& item : json.get_array()) {
        if (!FromJson(runtime, item, untrusted, &items.emplace_back())) return false;
      }
      return runtime.Recharge(*result);
    }
    case boost::json::kind::object: {
      const DepthGuard guard(runtime);
      if (!guard.ok()) return false;
      *result = runtime.NewDict();
      auto& dict = result->as<Dict>();
      dict.entries.reserve(json.get_object().size());
      for (const auto& [key, item] : json.get_object()) {
        Value value;
        if (!FromJson(runtime, item, untrusted, &value)) return false;
        // Keys of a JSON object are distinct, so there is nothing to look up.
        dict.entries.emplace_back(
            runtime.NewString(Text(std::string(key.data(), key.size()), untrusted)),
            std::move(value));
      }
      return runtime.Recharge(*result);
    }
  }
  return true;
}

}  // namespace polysil::jinja

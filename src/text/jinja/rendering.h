// Rendering: one run of a parsed template: its heap and budget, its variables, its output. Values
// for the variables are made in its runtime. Made, used and thrown away on one thread.
#pragma once

#include <boost/json/value.hpp>
#include <ctime>
#include <string_view>

#include "polysil/base/status.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace polysil::jinja {

class Rendering final {
 public:
  // The template must outlive this. now: what strftime_now() prints.
  Rendering(const Ast& ast, Dialect dialect, const RenderLimits& limits, const std::tm& now);

  Runtime& runtime() { return runtime_; }
  void SetVariable(std::string_view name, Value value);
  // INVALID_ARGUMENT: the message of raise_exception alone, or the line and what went wrong there.
  StatusOr<Text> Run();
  // The error that the runtime has met outside of Run(), as Run() would give it.
  Status error() const;

 private:
  const Ast& ast_;
  Runtime runtime_;
  Value variables_;
};

// The strings and numbers get the mark. False where the budget is used up or the value is nested
// too deeply.
bool FromJson(Runtime& runtime, const boost::json::value& json, bool untrusted, Value* result);

}  // namespace polysil::jinja

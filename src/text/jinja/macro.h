// What templates call that is not a method: macros, the caller of a call block, global functions.
#pragma once

#include <string>

#include "text/jinja/interpreter.h"

namespace polysil::jinja {

class Macro final : public Callable {
 public:
  // `scope`: where it was defined; its body sees the variables there as they are when it is called.
  Macro(Interpreter& interpreter, const MacroSignature& signature, Value scope)
      : interpreter_(interpreter), signature_(signature), scope_(std::move(scope)) {}

  void Clear() override { scope_ = Value(); }
  bool Call(Runtime& runtime, const Arguments& arguments, Value* result) override;
  bool Attribute(Runtime& runtime, std::string_view name, Value* result) override;
  std::string Describe() const override;
  const char* PythonType() const override { return "Macro"; }

 private:
  bool Bind(Runtime& runtime, const Arguments& arguments, Scope* scope, std::vector<bool>* bound);
  bool BindSpecial(Runtime& runtime, const Arguments& arguments, const std::vector<bool>& used,
                   Scope* scope);
  bool Has(int32_t id) const;

  Interpreter& interpreter_;
  const MacroSignature& signature_;
  Value scope_;
};

struct GlobalCallable final : Callable {
  explicit GlobalCallable(const Global& which) : global(which) {}
  bool Call(Runtime& runtime, const Arguments& arguments, Value* result) override;
  std::string Describe() const override;
  const char* PythonType() const override { return "function"; }
  const Global& global;
};

// The error of a namespace attribute whose name begins with an underscore.
bool FailUnderscore(Runtime& runtime, const Literal& name);
bool FailUnderscore(Runtime& runtime, const Value& name);

}  // namespace polysil::jinja

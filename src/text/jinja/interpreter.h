// Interpreter: runs a parsed template over variables, with Jinja's scoping rules. One per
// rendering; not thread-safe. Stays within the budget of its Runtime.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/functions.h"
#include "text/jinja/runtime.h"

namespace polysil::jinja {

// The variables of one block: a loop body, a macro, a with. Blocks look outwards through `parent`;
// outside of the outermost are the template's own variables.
struct Scope final : Object {
  explicit Scope(Value outer) : Object(Kind::kScope), parent(std::move(outer)) {}
  void Clear() override {
    parent = Value();
    variables.clear();
  }
  const Value* Find(int32_t id) const;
  void Set(int32_t id, Value value);

  Value parent;  // a Scope, or undefined at the outermost
  std::vector<std::pair<int32_t, Value>> variables;
};

class Interpreter final {
 public:
  // Both must outlive this.
  Interpreter(const Ast& ast, Runtime& runtime) : ast_(ast), runtime_(runtime) {}

  // Renders with the entries of `variables`. False where the runtime has an error.
  bool Run(const Dict& variables, Text* out);

  Runtime& runtime() { return runtime_; }

  // For macros and loops, which call back.
  // Runs the body of a macro or call block in `scope` and gives its output.
  bool RunBody(const Body& body, Value scope, Value* output);
  // Renders a for statement over `iterable` within `outer`.
  bool RunLoop(const ForStmt& statement, const Value& outer, Value iterable, int depth);
  // The same, as a string: what loop(...) gives in a recursive loop.
  bool RunLoopCaptured(const ForStmt& statement, const Value& outer, Value iterable, int depth,
                       Value* output);
  // Evaluates in a scope of the caller's choice.
  bool EvalIn(const Expr& expr, const Value& scope, Value* result);
  bool AssignIn(const Target& target, const Value& value, const Value& scope);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue, kError };

  Flow Exec(const Body& body);
  Flow ExecStatement(const Stmt& statement);
  Flow ExecIf(const IfStmt& statement);
  Flow ExecLoopBody(const ForStmt& statement, class Loop& loop);
  bool ExecSet(const SetStmt& statement);
  Flow ExecSetBlock(const SetBlockStmt& statement);
  bool ExecMacro(const MacroStmt& statement);
  bool ExecCallBlock(const CallBlockStmt& statement);
  Flow ExecFilterBlock(const FilterBlockStmt& statement);
  Flow ExecWith(const WithStmt& statement);
  Flow ExecScope(const ScopeStmt& statement);
  // Runs the body in a new scope within the current one, its output into `output`.
  Flow Capture(const Body& body, Value* output);
  bool ApplyBlockFilter(const Expr& filter, Value* body);

  bool Emit(const Value& value);
  // The output of a filter or call block, which is not converted.
  bool EmitString(const Value& value);
  bool EmitData(const std::string& data);

  bool Eval(const Expr& expr, Value* result);
  bool EvalNode(const Expr& expr, Value* result);
  bool EvalName(const NameExpr& expr, Value* result);
  bool EvalSlice(const SliceExpr& expr, Value* result);
  bool EvalCall(const CallExpr& expr, const Value* caller, Value* result);
  bool EvalMethodCall(const AttributeExpr& callee, const CallExpr& expr, const Value* caller,
                      Value* result);
  bool EvalArguments(const CallArguments& source, const Value* caller, Arguments* arguments);
  bool EvalFilter(const FilterExpr& expr, Value* result);
  bool EvalTest(const TestExpr& expr, bool* result);
  bool EvalUnary(const UnaryExpr& expr, Value* result);
  bool EvalArithmetic(const ArithmeticExpr& expr, Value* result);
  bool EvalConcat(const SequenceExpr& expr, Value* result);
  bool EvalCompare(const CompareExpr& expr, Value* result);
  bool EvalLogic(const LogicExpr& expr, Value* result);
  bool EvalCondition(const ConditionExpr& expr, Value* result);
  bool EvalSequence(const SequenceExpr& expr, Value* result);
  bool EvalDict(const DictExpr& expr, Value* result);

  const Value* Find(int32_t id) const;
  void Store(int32_t id, Value value);
  bool Assign(const Target& target, const Value& value);
  bool AssignTuple(const Target& target, const Value& value);
  bool AssignAttribute(const Target& target, const Value& value);
  Value NewScope() { return Value(runtime_.heap().New<Scope>(scope_)); }
  // Remembers the line of the first error.
  bool At(int32_t line);

  const Ast& ast_;
  Runtime& runtime_;
  std::vector<std::pair<bool, Value>> root_;  // by name id: defined, value
  Value scope_;                               // a Scope, or undefined at the top level
  Value block_body_;                          // what the filter of a block is applied to
  Text* out_ = nullptr;
  int32_t error_line_ = 0;

 public:
  int32_t error_line() const { return error_line_; }
};

}  // namespace polysil::jinja

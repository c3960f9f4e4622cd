// Statements and scopes; expressions are in evaluate.cc.
#include "text/jinja/interpreter.h"

#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/operations.h"

namespace polysil::jinja {

const Value* Scope::Find(int32_t id) const {
  for (const auto& [name, value] : variables) {
    if (name == id) return &value;
  }
  return nullptr;
}

void Scope::Set(int32_t id, Value value) {
  for (auto& [name, old] : variables) {
    if (name == id) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(id, std::move(value));
}

const Value* Interpreter::Find(int32_t id) const {
  for (const Value* scope = &scope_; !scope->is_undefined(); scope = &scope->as<Scope>().parent) {
    if (const Value* found = scope->as<Scope>().Find(id); found != nullptr) return found;
  }
  const auto& [defined, value] = root_[static_cast<size_t>(id)];
  return defined ? &value : nullptr;
}

void Interpreter::Store(int32_t id, Value value) {
  if (scope_.is_undefined()) {
    root_[static_cast<size_t>(id)] = {true, std::move(value)};
  } else {
    scope_.as<Scope>().Set(id, std::move(value));
  }
}

bool Interpreter::At(int32_t line) {
  if (error_line_ == 0) error_line_ = line;
  return false;
}

bool Interpreter::Run(const Dict& variables, Text* out) {
  root_.assign(ast_.names.size(), {false, Value()});
  for (size_t id = 0; id < ast_.names.size(); ++id) {
    const std::string& name = ast_.names[id];
    if (const Value* variable = variables.Find(name); variable != nullptr) {
      root_[id] = {true, *variable};
    } else if (const Global* global = FindGlobal(name); global != nullptr) {
      root_[id] = {true, Value(runtime_.heap().New<GlobalCallable>(*global))};
    }
  }
  out_ = out;
  return Exec(ast_.body) != Flow::kError;
}

bool Interpreter::RunBody(const Body& body, Value scope, Value* output) {
  Text text;
  Text* const out = std::exchange(out_, &text);
  std::swap(scope_, scope);
  const Flow flow = Exec(body);
  std::swap(scope_, scope);
  out_ = out;
  runtime_.SubtractPending(text.size());
  if (flow == Flow::kError) return false;
  *output = runtime_.NewString(std::move(text));
  return true;
}

bool Interpreter::EvalIn(const Expr& expr, const Value& scope, Value* result) {
  Value inner = scope;
  std::swap(scope_, inner);
  const bool ok = Eval(expr, result);
  std::swap(scope_, inner);
  return ok;
}

bool Interpreter::AssignIn(const Target& target, const Value& value, const Value& scope) {
  Value inner = scope;
  std::swap(scope_, inner);
  const bool ok = Assign(target, value);
  std::swap(scope_, inner);
  return ok;
}

bool Interpreter::EmitData(const std::string& data) {
  if (!runtime_.Reserve(data.size())) return false;
  runtime_.AddPending(data.size());
  out_->Append(data, false);
  return true;
}

bool Interpreter::Emit(const Value& value) {
  const size_t before = out_->size();
  const bool ok = AppendStr(runtime_, value, out_);
  runtime_.AddPending(out_->size() - before);
  return ok && runtime_.Room(0);
}

bool Interpreter::EmitString(const Value& value) {
  if (value.is_string()) return Emit(value);
  return runtime_.Fail("sequence item 0: expected str instance, " + TypeName(value) + " found");
}

Interpreter::Flow Interpreter::Exec(const Body& body) {
  for (const StmtPtr& statement : body) {
    if (const Flow flow = ExecStatement(*statement); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecStatement(const Stmt& statement) {
  const DepthGuard guard(runtime_);
  Flow flow = Flow::kNext;
  bool ok = guard.ok() && runtime_.Step();
  if (ok) {
    switch (statement.kind) {
      case StmtKind::kData:
        ok = EmitData(static_cast<const DataStmt&>(statement).text);
        break;
      case StmtKind::kPrint: {
        Value value;
        ok = Eval(*static_cast<const PrintStmt&>(statement).expr, &value) && Emit(value);
        break;
      }
      case StmtKind::kIf:
        flow = ExecIf(static_cast<const IfStmt&>(statement));
        break;
      case StmtKind::kFor: {
        const auto& loop = static_cast<const ForStmt&>(statement);
        Value iterable;
        ok = Eval(*loop.iterable, &iterable) && RunLoop(loop, scope_, std::move(iterable), 0);
        break;
      }
      case StmtKind::kSet:
        ok = ExecSet(static_cast<const SetStmt&>(statement));
        break;
      case StmtKind::kSetBlock:
        flow = ExecSetBlock(static_cast<const SetBlockStmt&>(statement));
        break;
      case StmtKind::kMacro:
        ok = ExecMacro(static_cast<const MacroStmt&>(statement));
        break;
      case StmtKind::kCallBlock:
        ok = ExecCallBlock(static_cast<const CallBlockStmt&>(statement));
        break;
      case StmtKind::kFilterBlock:
        flow = ExecFilterBlock(static_cast<const FilterBlockStmt&>(statement));
        break;
      case StmtKind::kWith:
        flow = ExecWith(static_cast<const WithStmt&>(statement));
        break;
      case StmtKind::kScope:
        flow = ExecScope(static_cast<const ScopeStmt&>(statement));
        break;
      case StmtKind::kBreak:
        return Flow::kBreak;
      case StmtKind::kContinue:
        return Flow::kContinue;
      case StmtKind::kFail:
        ok = runtime_.Fail(static_cast<const FailStmt&>(statement).message);
        break;
    }
  }
  if (ok && flow != Flow::kError) return flow;
  At(statement.line);
  return Flow::kError;
}

Interpreter::Flow Interpreter::ExecIf(const IfStmt& statement) {
  for (const auto& [test, body] : statement.branches) {
    Value value;
    if (!Eval(*test, &value)) return Flow::kError;
    if (Truth(value)) return Exec(body);
  }
  return Exec(statement.otherwise);
}

bool Interpreter::RunLoop(const ForStmt& statement, const Value& outer, Value iterable, int depth) {
  const Value object(runtime_.heap().New<Loop>(*this, statement, outer, depth));
  auto& loop = object.as<Loop>();
  Value scope = outer;
  std::swap(scope_, scope);
  const Flow flow = loop.Start(std::move(iterable)) ? ExecLoopBody(statement, loop) : Flow::kError;
  std::swap(scope_, scope);
  return flow != Flow::kError;
}

Interpreter::Flow Interpreter::ExecLoopBody(const ForStmt& statement, Loop& loop) {
  const Value outer = scope_;
  Value item;
  Flow flow = Flow::kNext;
  bool any = false;
  while (flow != Flow::kBreak && loop.Next(&item)) {
    // Every iteration starts afresh. The scope is used again unless a macro has kept it.
    if (scope_.object() != outer.object() && scope_.unique()) {
      scope_.as<Scope>().variables.clear();
    } else {
      scope_ = Value(runtime_.heap().New<Scope>(outer));
    }
    Store(kLoopId, Value(&loop));
    flow = Assign(statement.target, item) ? Exec(statement.body) : Flow::kError;
    // As in Jinja, an iteration that break or continue cut short does not keep `else` from running.
    any = any || flow == Flow::kNext;
    if (flow == Flow::kError || !runtime_.Room(0)) break;
  }
  scope_ = outer;
  if (runtime_.failed()) return Flow::kError;
  if (any || statement.otherwise.empty()) return Flow::kNext;
  scope_ = NewScope();
  flow = Exec(statement.otherwise);
  scope_ = outer;
  return flow == Flow::kError ? Flow::kError : Flow::kNext;
}

bool Interpreter::RunLoopCaptured(const ForStmt& statement, const Value& outer, Value iterable,
                                  int depth, Value* output) {
  Text text;
  Text* const out = std::exchange(out_, &text);
  const bool ok = RunLoop(statement, outer, std::move(iterable), depth);
  out_ = out;
  runtime_.SubtractPending(text.size());
  if (ok) *output = runtime_.NewString(std::move(text));
  return ok;
}

bool Interpreter::ExecSet(const SetStmt& statement) {
  Value value;
  return Eval(*statement.value, &value) && Assign(statement.target, value);
}

Interpreter::Flow Interpreter::Capture(const Body& body, Value* output) {
  const Value outer = scope_;
  Text text;
  Text* const out = std::exchange(out_, &text);
  scope_ = NewScope();
  const Flow flow = Exec(body);
  scope_ = outer;
  out_ = out;
  runtime_.SubtractPending(text.size());
  if (flow == Flow::kNext) *output = runtime_.NewString(std::move(text));
  return flow;
}

bool Interpreter::ApplyBlockFilter(const Expr& filter, Value* body) {
  Value enclosing = std::exchange(block_body_, std::move(*body));
  Value result;
  const bool ok = Eval(filter, &result);
  block_body_ = std::move(enclosing);
  *body = std::move(result);
  return ok;
}

Interpreter::Flow Interpreter::ExecSetBlock(const SetBlockStmt& statement) {
  Value body;
  const Flow flow = Capture(statement.body, &body);
  if (flow != Flow::kNext) return flow;
  if (statement.filter != nullptr && !ApplyBlockFilter(*statement.filter, &body)) {
    return Flow::kError;
  }
  return Assign(statement.target, body) ? Flow::kNext : Flow::kError;
}

Interpreter::Flow Interpreter::ExecFilterBlock(const FilterBlockStmt& statement) {
  Value body;
  const Flow flow = Capture(statement.body, &body);
  if (flow != Flow::kNext) return flow;
  return ApplyBlockFilter(*statement.filter, &body) && EmitString(body) ? Flow::kNext
                                                                        : Flow::kError;
}

bool Interpreter::ExecMacro(const MacroStmt& statement) {
  Store(statement.id, Value(runtime_.heap().New<Macro>(*this, statement.macro, scope_)));
  return runtime_.Room(0);
}

bool Interpreter::ExecCallBlock(const CallBlockStmt& statement) {
  const Value caller(runtime_.heap().New<Macro>(*this, statement.caller, scope_));
  Value result;
  return EvalCall(static_cast<const CallExpr&>(*statement.call), &caller, &result) &&
         EmitString(result);
}

Interpreter::Flow Interpreter::ExecWith(const WithStmt& statement) {
  const Value outer = scope_;
  const Value inner = NewScope();
  for (const auto& [target, expr] : statement.bindings) {
    Value value;
    if (!Eval(*expr, &value) || !AssignIn(target, value, inner)) return Flow::kError;
  }
  scope_ = inner;
  const Flow flow = Exec(statement.body);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::ExecScope(const ScopeStmt& statement) {
  const Value outer = scope_;
  if (statement.isolated) scope_ = Value();
  scope_ = NewScope();
  const Flow flow = Exec(statement.body);
  scope_ = outer;
  return flow;
}

bool Interpreter::Assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      Store(target.id, value);
      return true;
    case Target::Kind::kAttribute:
      return AssignAttribute(target, value);
    case Target::Kind::kTuple:
      return AssignTuple(target, value);
  }
  return true;
}

bool Interpreter::AssignTuple(const Target& target, const Value& value) {
  if (!IsIterable(value) || value.is(Kind::kLoop)) {
    return runtime_.Fail("cannot unpack non-iterable " + TypeName(value) + " object");
  }
  std::vector<Value> items;
  if (!Collect(runtime_, value, &items)) return false;
  if (items.size() > target.items.size()) {
    return runtime_.Fail("too many values to unpack (expected " +
                         std::to_string(target.items.size()) + ")");
  }
  if (items.size() < target.items.size()) {
    return runtime_.Fail("not enough values to unpack (expected " +
                         std::to_string(target.items.size()) + ", got " +
                         std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (!Assign(target.items[i], items[i])) return false;
  }
  return true;
}

bool Interpreter::AssignAttribute(const Target& target, const Value& value) {
  const Value* holder = Find(target.id);
  if (holder == nullptr || !holder->is(Kind::kNamespace)) {
    return runtime_.Fail("cannot assign attribute on non-namespace object");
  }
  const Value space = *holder;
  if (target.attribute->text().starts_with('_')) return FailUnderscore(runtime_, *target.attribute);
  space.as<Dict>().Set(target.attribute->value, value);
  return runtime_.Recharge(space);
}

}  // namespace polysil::jinja

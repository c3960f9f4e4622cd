// Expressions.
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace polysil::jinja {

bool Interpreter::Eval(const Expr& expr, Value* result) {
  if (!runtime_.Step()) return At(expr.line);
  switch (expr.kind) {
    case ExprKind::kConstant:
      *result = static_cast<const ConstantExpr&>(expr).value;
      return true;
    case ExprKind::kString:
      *result = static_cast<const StringExpr&>(expr).literal.value;
      return true;
    case ExprKind::kName:
      return EvalName(static_cast<const NameExpr&>(expr), result);
    default: {
      const DepthGuard guard(runtime_);
      return (guard.ok() && EvalNode(expr, result)) || At(expr.line);
    }
  }
}

bool Interpreter::EvalNode(const Expr& expr, Value* result) {
  switch (expr.kind) {
    case ExprKind::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      Value base;
      return Eval(*attribute.base, &base) &&
             GetAttribute(runtime_, base, attribute.literal.value, result);
    }
    case ExprKind::kItem: {
      const auto& item = static_cast<const ItemExpr&>(expr);
      Value base;
      Value key;
      return Eval(*item.base, &base) && Eval(*item.key, &key) &&
             GetItem(runtime_, base, key, result);
    }
    case ExprKind::kSlice:
      return EvalSlice(static_cast<const SliceExpr&>(expr), result);
    case ExprKind::kCall:
      return EvalCall(static_cast<const CallExpr&>(expr), nullptr, result);
    case ExprKind::kFilter:
      return EvalFilter(static_cast<const FilterExpr&>(expr), result);
    case ExprKind::kTest: {
      bool holds = false;
      if (!EvalTest(static_cast<const TestExpr&>(expr), &holds)) return false;
      *result = Value::Bool(holds);
      return true;
    }
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return EvalUnary(static_cast<const UnaryExpr&>(expr), result);
    case ExprKind::kArithmetic:
      return EvalArithmetic(static_cast<const ArithmeticExpr&>(expr), result);
    case ExprKind::kConcat:
      return EvalConcat(static_cast<const SequenceExpr&>(expr), result);
    case ExprKind::kCompare:
      return EvalCompare(static_cast<const CompareExpr&>(expr), result);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalLogic(static_cast<const LogicExpr&>(expr), result);
    case ExprKind::kCondition:
      return EvalCondition(static_cast<const ConditionExpr&>(expr), result);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvalSequence(static_cast<const SequenceExpr&>(expr), result);
    case ExprKind::kDict:
      return EvalDict(static_cast<const DictExpr&>(expr), result);
    case ExprKind::kBigInteger: {
      const auto& number = static_cast<const BigIntegerExpr&>(expr);
      std::optional<Value> value = ParseInt(runtime_.heap(), number.digits, number.base);
      if (!value) return runtime_.Fail("an integer literal is too large");
      *result = *std::move(value);
      return true;
    }
    case ExprKind::kConstant:
    case ExprKind::kString:
    case ExprKind::kName:
      break;  // Eval has done them
  }
  return true;
}

bool Interpreter::EvalName(const NameExpr& expr, Value* result) {
  if (const Value* found = Find(expr.id); found != nullptr) {
    *result = *found;
  } else {
    *result = runtime_.NewUndefined(Undefined::Reason::kName, {}, expr.literal.value);
  }
  return true;
}

bool Interpreter::EvalSlice(const SliceExpr& expr, Value* result) {
  Value base;
  Value start = Value::None();
  Value stop = Value::None();
  Value step = Value::None();
  return Eval(*expr.base, &base) && (expr.start == nullptr || Eval(*expr.start, &start)) &&
         (expr.stop == nullptr || Eval(*expr.stop, &stop)) &&
         (expr.step == nullptr || Eval(*expr.step, &step)) &&
         GetSlice(runtime_, base, start, stop, step, result);
}

bool Interpreter::EvalCall(const CallExpr& expr, const Value* caller, Value* result) {
  if (expr.callee->kind == ExprKind::kAttribute) {
    return EvalMethodCall(static_cast<const AttributeExpr&>(*expr.callee), expr, caller, result);
  }
  Value callee;
  Arguments arguments;
  return Eval(*expr.callee, &callee) && EvalArguments(expr.arguments, caller, &arguments) &&
         CallValue(runtime_, callee, arguments, result);
}

// base.name(...): a method of a built-in type is called without making an object of it first.
bool Interpreter::EvalMethodCall(const AttributeExpr& callee, const CallExpr& expr,
                                 const Value* caller, Value* result) {
  Value base;
  Arguments arguments;
  if (!Eval(*callee.base, &base)) return false;
  const Method* method = FindMethod(base.kind(), callee.literal.text());
  if (method != nullptr && (!method->mutates || runtime_.serving())) {
    return EvalArguments(expr.arguments, caller, &arguments) &&
           method->function(runtime_, base, arguments, result);
  }
  Value function;
  return GetAttribute(runtime_, base, callee.literal.value, &function) &&
         EvalArguments(expr.arguments, caller, &arguments) &&
         CallValue(runtime_, function, arguments, result);
}

bool Interpreter::EvalArguments(const CallArguments& source, const Value* caller,
                                Arguments* arguments) {
  for (const ExprPtr& expr : source.positional) {
    if (!Eval(*expr, &arguments->positional.emplace_back())) return false;
  }
  if (source.star != nullptr) {
    Value items;
    if (!Eval(*source.star, &items) || !Collect(runtime_, items, &arguments->positional)) {
      return false;
    }
  }
  for (const auto& [name, expr] : source.keyword) {
    auto& [key, value] = arguments->keyword.emplace_back();
    key = name.value;
    if (!Eval(*expr, &value)) return false;
  }
  if (source.double_star != nullptr) {
    Value mapping;
    if (!Eval(*source.double_star, &mapping)) return false;
    if (!mapping.is_dict()) {
      return runtime_.Fail("argument after ** must be a mapping, not " + TypeName(mapping));
    }
    for (const auto& [key, value] : mapping.as<Dict>().entries) {
      if (!key.is_string()) return runtime_.Fail("keywords must be strings");
      if (!runtime_.Step(static_cast<int64_t>(arguments->keyword.size()) + 1)) return false;
      if (arguments->Keyword(key.as<String>().bytes()) != nullptr) {
        return runtime_.Fail("got multiple values for keyword argument " + ReprForMessage(key));
      }
      arguments->keyword.emplace_back(key, value);
    }
  }
  if (caller != nullptr) {
    arguments->keyword.emplace_back(runtime_.NewString("caller"), *caller);
  }
  return true;
}

bool Interpreter::EvalFilter(const FilterExpr& expr, Value* result) {
  Value input = block_body_;
  if (expr.base != nullptr && !Eval(*expr.base, &input)) return false;
  if (expr.filter == nullptr || (expr.filter->extension && !runtime_.serving())) {
    return runtime_.Fail("No filter named '" + expr.name + "' found.");
  }
  Arguments arguments;
  return EvalArguments(expr.arguments, nullptr, &arguments) &&
         expr.filter->function(runtime_, input, arguments, result);
}

bool Interpreter::EvalTest(const TestExpr& expr, bool* result) {
  Value input;
  if (!Eval(*expr.base, &input)) return false;
  if (expr.test == nullptr) return runtime_.Fail("No test named '" + expr.name + "' found.");
  Arguments arguments;
  return EvalArguments(expr.arguments, nullptr, &arguments) &&
         expr.test->function(runtime_, input, arguments, result);
}

bool Interpreter::EvalUnary(const UnaryExpr& expr, Value* result) {
  Value operand;
  if (!Eval(*expr.operand, &operand)) return false;
  if (expr.kind == ExprKind::kNot) {
    *result = Value::Bool(!Truth(operand));
    return true;
  }
  if (operand.is_undefined()) return runtime_.FailUndefined(operand);
  const bool negate = expr.kind == ExprKind::kNegate;
  if (!operand.is_number()) {
    return runtime_.Fail("bad operand type for unary " + std::string(negate ? "-" : "+") + ": '" +
                         TypeName(operand) + "'");
  }
  if (negate) return Negate(runtime_.heap(), operand, result);
  *result = operand.is(Kind::kBool) ? Value::Int(operand.bool_value() ? 1 : 0, operand.tainted())
                                    : operand;
  return true;
}

bool Interpreter::EvalArithmetic(const ArithmeticExpr& expr, Value* result) {
  Value left;
  Value right;
  if (!Eval(*expr.left, &left) || !Eval(*expr.right, &right)) return false;
  // A chain of + appends to its own intermediate result, so it takes linear time.
  if (expr.operation == Arithmetic::kAdd) return Add(runtime_, std::move(left), right, result);
  return ApplyArithmetic(runtime_, expr.operation, left, right, result);
}

bool Interpreter::EvalConcat(const SequenceExpr& expr, Value* result) {
  Text text;
  for (const ExprPtr& item : expr.items) {
    Value value;
    if (!Eval(*item, &value) || !AppendStr(runtime_, value, &text)) return false;
  }
  *result = runtime_.NewString(std::move(text));
  return runtime_.Room(0);
}

bool Interpreter::EvalCompare(const CompareExpr& expr, Value* result) {
  Value left;
  if (!Eval(*expr.first, &left)) return false;
  bool holds = true;
  for (const auto& [comparison, operand] : expr.rest) {
    Value right;
    if (!Eval(*operand, &right)) return false;
    bool ok = true;
    switch (comparison) {
      case Comparison::kEqual:
        ok = Equal(runtime_, left, right, &holds);
        break;
      case Comparison::kNotEqual:
        ok = Equal(runtime_, left, right, &holds);
        holds = !holds;
        break;
      case Comparison::kLess:
        ok = Compare(runtime_, "<", left, right, &holds);
        break;
      case Comparison::kLessEqual:
        ok = Compare(runtime_, "<=", left, right, &holds);
        break;
      case Comparison::kGreater:
        ok = Compare(runtime_, ">", left, right, &holds);
        break;
      case Comparison::kGreaterEqual:
        ok = Compare(runtime_, ">=", left, right, &holds);
        break;
      case Comparison::kIn:
        ok = Contains(runtime_, right, left, &holds);
        break;
      case Comparison::kNotIn:
        ok = Contains(runtime_, right, left, &holds);
        holds = !holds;
        break;
    }
    if (!ok) return false;
    if (!holds) break;
    left = std::move(right);
  }
  *result = Value::Bool(holds);
  return true;
}

bool Interpreter::EvalLogic(const LogicExpr& expr, Value* result) {
  if (!Eval(*expr.left, result)) return false;
  if (Truth(*result) == (expr.kind == ExprKind::kOr)) return true;
  return Eval(*expr.right, result);
}

bool Interpreter::EvalCondition(const ConditionExpr& expr, Value* result) {
  Value test;
  if (!Eval(*expr.test, &test)) return false;
  if (Truth(test)) return Eval(*expr.yes, result);
  if (expr.no != nullptr) return Eval(*expr.no, result);
  *result = runtime_.NewUndefined("the inline if-expression on line " + std::to_string(expr.line) +
                                  " evaluated to false and no else section was defined.");
  return true;
}

bool Interpreter::EvalSequence(const SequenceExpr& expr, Value* result) {
  const bool list = expr.kind == ExprKind::kList;
  Value sequence = runtime_.NewList(list ? Kind::kList : Kind::kTuple);
  std::vector<Value>& items = sequence.as<List>().items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    Value value;
    if (!Eval(*item, &value)) return false;
    items.push_back(std::move(value));
  }
  *result = std::move(sequence);
  return runtime_.Recharge(*result);
}

bool Interpreter::EvalDict(const DictExpr& expr, Value* result) {
  Value dict = runtime_.NewDict();
  for (const auto& [key_expr, value_expr] : expr.items) {
    Value key;
    Value value;
    if (!Eval(*key_expr, &key) || !Eval(*value_expr, &value) || !CheckHashable(runtime_, key)) {
      return false;
    }
    dict.as<Dict>().Set(std::move(key), std::move(value));
  }
  *result = std::move(dict);
  return runtime_.Recharge(*result);
}

}  // namespace polysil::jinja

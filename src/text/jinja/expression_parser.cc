#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja/functions.h"
#include "text/jinja/parser.h"

namespace polysil::jinja {

ExprPtr ExpressionParser::Finish(ExprPtr expr, int32_t line,
                                 std::initializer_list<const Expr*> children) {
  for (const Expr* child : children) {
    if (child == nullptr) return nullptr;
    expr->height = std::max(expr->height, child->height + 1);
  }
  if (expr->height > kExpressionHeightMax) {
    stream_.Fail("an expression has more than " + std::to_string(kExpressionHeightMax) +
                 " operators applied to each other");
    return nullptr;
  }
  expr->line = line;
  return expr;
}

ExprPtr ExpressionParser::FinishCall(ExprPtr expr, int32_t line, const Expr* base,
                                     const CallArguments& arguments) {
  if (base != nullptr) expr->height = base->height + 1;
  const auto add = [&expr](const ExprPtr& child) {
    if (child != nullptr) expr->height = std::max(expr->height, child->height + 1);
  };
  for (const ExprPtr& argument : arguments.positional) add(argument);
  for (const auto& [name, argument] : arguments.keyword) add(argument);
  add(arguments.star);
  add(arguments.double_star);
  return Finish(std::move(expr), line, {});
}

ExprPtr ExpressionParser::ParseExpression(bool with_condition) {
  const NestingGuard guard(stream_);
  if (!guard.ok()) return nullptr;
  return with_condition ? ParseCondition() : ParseOr();
}

ExprPtr ExpressionParser::ParseCondition() {
  const int32_t line = stream_.current().line;
  const size_t unknown_before = stream_.unknown.size();
  ExprPtr expr = ParseOr();
  while (expr != nullptr && stream_.SkipName("if")) {
    auto condition = std::make_unique<ConditionExpr>();
    condition->yes = std::move(expr);
    condition->test = ParseOr();
    if (condition->test == nullptr) return nullptr;
    if (stream_.SkipName("else")) {
      condition->no = ParseExpression();
      if (condition->no == nullptr) return nullptr;
      condition->height = condition->no->height + 1;
    }
    for (size_t i = unknown_before; i < stream_.unknown.size(); ++i) {
      stream_.unknown[i].guarded = true;
    }
    const Expr* test = condition->test.get();
    const Expr* yes = condition->yes.get();
    expr = Finish(std::move(condition), line, {test, yes});
  }
  return expr;
}

ExprPtr ExpressionParser::ParseOr() {
  const int32_t line = stream_.current().line;
  ExprPtr left = ParseAnd();
  while (left != nullptr && stream_.SkipName("or")) {
    ExprPtr right = ParseAnd();
    const Expr* a = left.get();
    const Expr* b = right.get();
    left = Finish(std::make_unique<LogicExpr>(ExprKind::kOr, std::move(left), std::move(right)),
                  line, {a, b});
  }
  return left;
}

ExprPtr ExpressionParser::ParseAnd() {
  const int32_t line = stream_.current().line;
  ExprPtr left = ParseNot();
  while (left != nullptr && stream_.SkipName("and")) {
    ExprPtr right = ParseNot();
    const Expr* a = left.get();
    const Expr* b = right.get();
    left = Finish(std::make_unique<LogicExpr>(ExprKind::kAnd, std::move(left), std::move(right)),
                  line, {a, b});
  }
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  if (!stream_.at_name("not")) return ParseCompare();
  const NestingGuard guard(stream_);
  if (!guard.ok()) return nullptr;
  const int32_t line = stream_.current().line;
  stream_.Skip();
  ExprPtr operand = ParseNot();
  const Expr* child = operand.get();
  return Finish(std::make_unique<UnaryExpr>(ExprKind::kNot, std::move(operand)), line, {child});
}

ExprPtr ExpressionParser::ParseCompare() {
  const int32_t line = stream_.current().line;
  ExprPtr first = ParseSum();
  std::unique_ptr<CompareExpr> compare;
  const auto comparison = [this]() -> std::optional<Comparison> {
    static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
        {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
        {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual},
        {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual}};
    for (const auto& [text, which] : kOperators) {
      if (stream_.SkipOperator(text)) return which;
    }
    if (stream_.SkipName("in")) return Comparison::kIn;
    if (stream_.at_name("not") && stream_.next().kind == TokenKind::kName &&
        stream_.next().text == "in") {
      stream_.Skip();
      stream_.Skip();
      return Comparison::kNotIn;
    }
    return std::nullopt;
  };
  while (first != nullptr || compare != nullptr) {
    const std::optional<Comparison> which = comparison();
    if (!which) break;
    if (compare == nullptr) {
      compare = std::make_unique<CompareExpr>();
      compare->height = first->height + 1;
      compare->first = std::exchange(first, nullptr);
    }
    ExprPtr operand = ParseSum();
    if (operand == nullptr) return nullptr;
    compare->height = std::max(compare->height, operand->height + 1);
    compare->rest.emplace_back(*which, std::move(operand));
  }
  if (compare == nullptr) return first;
  return Finish(std::move(compare), line, {});
}

ExprPtr ExpressionParser::ParseSum() {
  const int32_t line = stream_.current().line;
  ExprPtr left = ParseConcat();
  while (left != nullptr && (stream_.at_operator("+") || stream_.at_operator("-"))) {
    const Arithmetic operation =
        stream_.at_operator("+") ? Arithmetic::kAdd : Arithmetic::kSubtract;
    stream_.Skip();
    ExprPtr right = ParseConcat();
    const Expr* a = left.get();
    const Expr* b = right.get();
    left = Finish(std::make_unique<ArithmeticExpr>(operation, std::move(left), std::move(right)),
                  line, {a, b});
  }
  return left;
}

ExprPtr ExpressionParser::ParseConcat() {
  const int32_t line = stream_.current().line;
  ExprPtr first = ParseProduct();
  if (first == nullptr || !stream_.at_operator("~")) return first;
  auto concat = std::make_unique<SequenceExpr>(ExprKind::kConcat);
  concat->height = first->height + 1;
  concat->items.push_back(std::move(first));
  while (stream_.SkipOperator("~")) {
    ExprPtr item = ParseProduct();
    if (item == nullptr) return nullptr;
    concat->height = std::max(concat->height, item->height + 1);
    concat->items.push_back(std::move(item));
  }
  return Finish(std::move(concat), line, {});
}

ExprPtr ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, Arithmetic> kOperators[] = {
      {"*", Arithmetic::kMultiply},
      {"/", Arithmetic::kDivide},
      {"//", Arithmetic::kFloorDivide},
      {"%", Arithmetic::kModulo}};
  const int32_t line = stream_.current().line;
  ExprPtr left = ParsePower();
  while (left != nullptr && stream_.at(TokenKind::kOperator)) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [this](const auto& entry) { return stream_.current().text == entry.first; });
    if (found == std::end(kOperators)) break;
    stream_.Skip();
    ExprPtr right = ParsePower();
    const Expr* a = left.get();
    const Expr* b = right.get();
    left =
        Finish(std::make_unique<ArithmeticExpr>(found->second, std::move(left), std::move(right)),
               line, {a, b});
  }
  return left;
}

ExprPtr ExpressionParser::ParsePower() {
  const int32_t line = stream_.current().line;
  ExprPtr left = ParseUnary(true);
  while (left != nullptr && stream_.SkipOperator("**")) {
    ExprPtr right = ParseUnary(true);
    const Expr* a = left.get();
    const Expr* b = right.get();
    left = Finish(
        std::make_unique<ArithmeticExpr>(Arithmetic::kPower, std::move(left), std::move(right)),
        line, {a, b});
  }
  return left;
}

ExprPtr ExpressionParser::ParseUnary(bool with_filters) {
  const int32_t line = stream_.current().line;
  ExprPtr expr;
  if (stream_.at_operator("-") || stream_.at_operator("+")) {
    const NestingGuard guard(stream_);
    if (!guard.ok()) return nullptr;
    const ExprKind kind = stream_.at_operator("-") ? ExprKind::kNegate : ExprKind::kPlus;
    stream_.Skip();
    ExprPtr operand = ParseUnary(false);
    const Expr* child = operand.get();
    expr = Finish(std::make_unique<UnaryExpr>(kind, std::move(operand)), line, {child});
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  return with_filters ? ParseFilterExpression(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::ParsePrimary() {
  const int32_t line = stream_.current().line;
  switch (stream_.current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    case TokenKind::kString: {
      std::string text;
      for (; stream_.at(TokenKind::kString); stream_.Skip()) text += stream_.current().text;
      return Finish(std::make_unique<StringExpr>(std::move(text)), line, {});
    }
    default:
      break;
  }
  if (stream_.at_operator("[")) return ParseList();
  if (stream_.at_operator("{")) return ParseDict();
  if (stream_.SkipOperator("(")) {
    ExprPtr expr = ParseTuple(true, {}, true);
    if (expr == nullptr || !stream_.ExpectOperator(")")) return nullptr;
    return expr;
  }
  stream_.Fail("unexpected '" + stream_.Describe() + "'");
  return nullptr;
}

ExprPtr ExpressionParser::ParseName() {
  const int32_t line = stream_.current().line;
  const std::string name = stream_.current().text;
  stream_.Skip();
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    const bool value = name[0] == 't' || name[0] == 'T';
    return Finish(std::make_unique<ConstantExpr>(Value::Bool(value)), line, {});
  }
  if (name == "none" || name == "None") {
    return Finish(std::make_unique<ConstantExpr>(Value::None()), line, {});
  }
  const int32_t id = stream_.NameId(name);
  for (MacroSignature* macro : stream_.macros) {
    macro->takes_caller |= id == kCallerId;
    macro->takes_varargs |= id == kVarargsId;
    macro->takes_kwargs |= id == kKwargsId;
  }
  return Finish(std::make_unique<NameExpr>(id, name), line, {});
}

ExprPtr ExpressionParser::ParseNumber() {
  const Token token = stream_.current();
  stream_.Skip();
  if (token.kind == TokenKind::kFloat) {
    const std::optional<double> value = ParseFloat(token.text);
    return Finish(std::make_unique<ConstantExpr>(Value::Float(value.value_or(0))), token.line, {});
  }
  int base = 10;
  std::string_view digits = token.text;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) >= 'a') {
    base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (parsed.ec == std::errc()) {
    return Finish(std::make_unique<ConstantExpr>(Value::Int(value)), token.line, {});
  }
  if (digits.size() > 4300) {
    stream_.Fail("an integer has more than 4300 digits", token.line);
    return nullptr;
  }
  return Finish(std::make_unique<BigIntegerExpr>(std::string(digits), base), token.line, {});
}

ExprPtr ExpressionParser::ParseTuple(bool with_condition, std::string_view end_name,
                                     bool parenthesized) {
  const int32_t line = stream_.current().line;
  auto tuple = std::make_unique<SequenceExpr>(ExprKind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple->items.empty() && !stream_.ExpectOperator(",")) return nullptr;
    if (stream_.at(TokenKind::kVariableEnd) || stream_.at(TokenKind::kBlockEnd) ||
        stream_.at_operator(")") || (!end_name.empty() && stream_.at_name(end_name))) {
      break;
    }
    ExprPtr item = ParseExpression(with_condition);
    if (item == nullptr) return nullptr;
    tuple->height = std::max(tuple->height, item->height + 1);
    tuple->items.push_back(std::move(item));
    if (!stream_.at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple->items.empty()) return std::move(tuple->items[0]);
  if (!is_tuple && !parenthesized) {
    stream_.Fail("Expected an expression, got '" + stream_.Describe() + "'");
    return nullptr;
  }
  return Finish(std::move(tuple), line, {});
}

ExprPtr ExpressionParser::ParseList() {
  const int32_t line = stream_.current().line;
  stream_.Skip();
  auto list = std::make_unique<SequenceExpr>(ExprKind::kList);
  while (!stream_.at_operator("]")) {
    if (!list->items.empty() && !stream_.ExpectOperator(",")) return nullptr;
    if (stream_.at_operator("]")) break;
    ExprPtr item = ParseExpression();
    if (item == nullptr) return nullptr;
    list->height = std::max(list->height, item->height + 1);
    list->items.push_back(std::move(item));
  }
  stream_.Skip();
  return Finish(std::move(list), line, {});
}

ExprPtr ExpressionParser::ParseDict() {
  const int32_t line = stream_.current().line;
  stream_.Skip();
  auto dict = std::make_unique<DictExpr>();
  while (!stream_.at_operator("}")) {
    if (!dict->items.empty() && !stream_.ExpectOperator(",")) return nullptr;
    if (stream_.at_operator("}")) break;
    ExprPtr key = ParseExpression();
    if (key == nullptr || !stream_.ExpectOperator(":")) return nullptr;
    ExprPtr value = ParseExpression();
    if (value == nullptr) return nullptr;
    dict->height = std::max({dict->height, key->height + 1, value->height + 1});
    dict->items.emplace_back(std::move(key), std::move(value));
  }
  stream_.Skip();
  return Finish(std::move(dict), line, {});
}

}  // namespace polysil::jinja

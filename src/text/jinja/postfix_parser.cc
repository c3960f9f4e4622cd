// What may follow a primary expression (attributes, subscripts, calls, filters, tests), and
// targets.
#include <algorithm>

#include "text/jinja/expression_parser.h"
#include "text/jinja/functions.h"

namespace polysil::jinja {

ExprPtr ExpressionParser::ParsePostfix(ExprPtr base) {
  while (base != nullptr) {
    if (stream_.at_operator(".") || stream_.at_operator("[")) {
      base = ParseSubscript(std::move(base));
    } else if (stream_.at_operator("(")) {
      base = ParseCall(std::move(base));
    } else {
      break;
    }
  }
  return base;
}

ExprPtr ExpressionParser::ParseFilterExpression(ExprPtr base) {
  while (base != nullptr) {
    if (stream_.at_operator("|")) {
      if (!ParseFilters(false, &base)) return nullptr;
    } else if (stream_.at_name("is")) {
      base = ParseTest(std::move(base));
    } else if (stream_.at_operator("(")) {
      base = ParseCall(std::move(base));
    } else {
      break;
    }
  }
  return base;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr base) {
  const int32_t line = stream_.current().line;
  const Expr* child = base.get();
  if (stream_.SkipOperator(".")) {
    const Token token = stream_.current();
    if (token.kind == TokenKind::kName) {
      stream_.Skip();
      return Finish(std::make_unique<AttributeExpr>(std::move(base), token.text), line, {child});
    }
    if (token.kind != TokenKind::kInteger) {
      stream_.Fail("expected name or number");
      return nullptr;
    }
    ExprPtr key = ParseNumber();
    if (key == nullptr) return nullptr;
    return Finish(std::make_unique<ItemExpr>(std::move(base), std::move(key)), line, {child});
  }
  stream_.Skip();
  std::vector<ExprPtr> keys;
  bool any_slice = false;
  while (!stream_.at_operator("]")) {
    if (!keys.empty() && !stream_.ExpectOperator(",")) return nullptr;
    bool is_slice = false;
    ExprPtr key = ParseSubscripted(&base, &is_slice);
    if (key == nullptr) return nullptr;
    any_slice |= is_slice;
    keys.push_back(std::move(key));
  }
  stream_.Skip();
  if (any_slice) {
    if (keys.size() == 1) return Finish(std::move(keys[0]), line, {});
    stream_.Fail("a subscript holds more than one slice", line);
    return nullptr;
  }
  ExprPtr key;
  if (keys.size() == 1) {
    key = std::move(keys[0]);
  } else {
    auto tuple = std::make_unique<SequenceExpr>(ExprKind::kTuple);
    for (ExprPtr& item : keys) {
      tuple->height = std::max(tuple->height, item->height + 1);
      tuple->items.push_back(std::move(item));
    }
    key = Finish(std::move(tuple), line, {});
  }
  const Expr* key_child = key.get();
  return Finish(std::make_unique<ItemExpr>(std::move(base), std::move(key)), line,
                {child, key_child});
}

// A key, or the whole slice expression, which takes `base`.
ExprPtr ExpressionParser::ParseSubscripted(ExprPtr* base, bool* is_slice) {
  ExprPtr start;
  if (!stream_.at_operator(":")) {
    start = ParseExpression();
    if (start == nullptr || !stream_.at_operator(":")) return start;
  }
  *is_slice = true;
  stream_.Skip();
  if (*base == nullptr) {
    stream_.Fail("a subscript holds more than one slice");
    return nullptr;
  }
  auto slice = std::make_unique<SliceExpr>();
  slice->height = (*base)->height + 1;
  const auto at_part_end = [this] {
    return stream_.at_operator(":") || stream_.at_operator("]") || stream_.at_operator(",");
  };
  const auto parse_part = [&](ExprPtr* part) {
    if (at_part_end()) return true;
    *part = ParseExpression();
    return *part != nullptr;
  };
  slice->start = std::move(start);
  if (!parse_part(&slice->stop)) return nullptr;
  if (stream_.SkipOperator(":") && !parse_part(&slice->step)) return nullptr;
  for (const ExprPtr* part : {&slice->start, &slice->stop, &slice->step}) {
    if (*part != nullptr) slice->height = std::max(slice->height, (*part)->height + 1);
  }
  slice->base = std::move(*base);
  return slice;
}

bool ExpressionParser::ParseArguments(CallArguments* arguments) {
  const int32_t line = stream_.current().line;
  if (!stream_.ExpectOperator("(")) return false;
  const auto ensure = [this, line](bool condition) {
    return condition || stream_.Fail("invalid syntax for function call expression", line);
  };
  bool comma = false;
  while (!stream_.at_operator(")")) {
    if (comma) {
      if (!stream_.ExpectOperator(",")) return false;
      if (stream_.at_operator(")")) break;
    }
    comma = true;
    const bool no_star = arguments->star == nullptr && arguments->double_star == nullptr;
    if (stream_.at_operator("*")) {
      if (!ensure(no_star)) return false;
      stream_.Skip();
      if ((arguments->star = ParseExpression()) == nullptr) return false;
    } else if (stream_.at_operator("**")) {
      if (!ensure(arguments->double_star == nullptr)) return false;
      stream_.Skip();
      if ((arguments->double_star = ParseExpression()) == nullptr) return false;
    } else if (stream_.at(TokenKind::kName) && stream_.next().kind == TokenKind::kOperator &&
               stream_.next().text == "=") {
      if (!ensure(arguments->double_star == nullptr)) return false;
      std::string name = stream_.current().text;
      stream_.Skip();
      stream_.Skip();
      ExprPtr value = ParseExpression();
      if (value == nullptr) return false;
      for (const auto& [other, expr] : arguments->keyword) {
        if (other.text() == name) return stream_.Fail("keyword argument repeated: " + name, line);
      }
      arguments->keyword.emplace_back(Literal(std::move(name)), std::move(value));
    } else {
      if (!ensure(no_star && arguments->keyword.empty())) return false;
      ExprPtr value = ParseExpression();
      if (value == nullptr) return false;
      arguments->positional.push_back(std::move(value));
    }
  }
  return stream_.ExpectOperator(")");
}

ExprPtr ExpressionParser::ParseCall(ExprPtr callee) {
  const int32_t line = stream_.current().line;
  auto call = std::make_unique<CallExpr>();
  if (!ParseArguments(&call->arguments)) return nullptr;
  call->callee = std::move(callee);
  const CallExpr& fields = *call;
  return FinishCall(std::move(call), line, fields.callee.get(), fields.arguments);
}

bool ExpressionParser::ParseDottedName(std::string* name) {
  *name = stream_.current().text;
  if (!stream_.Expect(TokenKind::kName)) return false;
  while (stream_.SkipOperator(".")) {
    *name += "." + stream_.current().text;
    if (!stream_.Expect(TokenKind::kName)) return false;
  }
  return true;
}

bool ExpressionParser::ParseFilters(bool inline_start, ExprPtr* base) {
  while (inline_start || stream_.SkipOperator("|")) {
    inline_start = false;
    const int32_t line = stream_.current().line;
    auto filter = std::make_unique<FilterExpr>();
    if (!ParseDottedName(&filter->name)) return false;
    if (stream_.at_operator("(") && !ParseArguments(&filter->arguments)) return false;
    filter->filter = FindFilter(filter->name);
    if (filter->filter == nullptr) {
      stream_.unknown.push_back({"No filter named '" + filter->name + "'.", line, stream_.guarded});
    }
    filter->base = std::move(*base);
    const FilterExpr& fields = *filter;
    *base = FinishCall(std::move(filter), line, fields.base.get(), fields.arguments);
    if (*base == nullptr) return false;
  }
  return true;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr base) {
  const int32_t line = stream_.current().line;
  stream_.Skip();
  const bool negated = stream_.SkipName("not");
  auto test = std::make_unique<TestExpr>();
  if (!ParseDottedName(&test->name)) return nullptr;
  const TokenKind kind = stream_.current().kind;
  const bool value_follows = kind == TokenKind::kName || kind == TokenKind::kString ||
                             kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
                             stream_.at_operator("[") || stream_.at_operator("{");
  if (stream_.at_operator("(")) {
    if (!ParseArguments(&test->arguments)) return nullptr;
  } else if (value_follows && !stream_.at_name("else") && !stream_.at_name("or") &&
             !stream_.at_name("and")) {
    if (stream_.at_name("is")) {
      stream_.Fail("You cannot chain multiple tests with is");
      return nullptr;
    }
    ExprPtr argument = ParsePostfix(ParsePrimary());
    if (argument == nullptr) return nullptr;
    test->arguments.positional.push_back(std::move(argument));
  }
  test->test = FindTest(test->name);
  if (test->test == nullptr) {
    stream_.unknown.push_back({"No test named '" + test->name + "'.", line, stream_.guarded});
  }
  test->base = std::move(base);
  const TestExpr& fields = *test;
  ExprPtr expr = FinishCall(std::move(test), line, fields.base.get(), fields.arguments);
  if (!negated || expr == nullptr) return expr;
  const Expr* child = expr.get();
  return Finish(std::make_unique<UnaryExpr>(ExprKind::kNot, std::move(expr)), line, {child});
}

bool ExpressionParser::ParseTargetName(int32_t* id, std::string* name) {
  *name = stream_.current().text;
  if (!stream_.Expect(TokenKind::kName)) return false;
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), *name) != std::end(kConstants)) {
    return stream_.Fail("can't assign to '" + *name + "'");
  }
  *id = stream_.NameId(*name);
  return true;
}

bool ExpressionParser::ParseTarget(bool with_attribute, std::string_view end_name, Target* target) {
  std::vector<Target> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty() && !stream_.ExpectOperator(",")) return false;
    if (stream_.at(TokenKind::kBlockEnd) || stream_.at_operator(")") ||
        (!end_name.empty() && stream_.at_name(end_name))) {
      break;
    }
    Target item;
    if (with_attribute && stream_.at(TokenKind::kName) &&
        stream_.next().kind == TokenKind::kOperator && stream_.next().text == ".") {
      item.kind = Target::Kind::kAttribute;
      item.id = stream_.NameId(stream_.current().text);
      stream_.Skip();
      stream_.Skip();
      item.attribute = std::make_unique<Literal>(stream_.current().text);
      if (!stream_.Expect(TokenKind::kName)) return false;
    } else {
      const NestingGuard guard(stream_);
      if (!guard.ok()) return false;
      const ExprPtr expr = ParsePrimary();
      if (expr == nullptr || !ToTarget(*expr, &item)) return false;
    }
    items.push_back(std::move(item));
    if (!stream_.at_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) {
    *target = std::move(items[0]);
    return true;
  }
  if (!is_tuple) {
    return stream_.Fail("Expected an expression, got '" + stream_.Describe() + "'");
  }
  target->kind = Target::Kind::kTuple;
  target->items = std::move(items);
  return true;
}

bool ExpressionParser::ToTarget(const Expr& expr, Target* target) {
  if (expr.kind == ExprKind::kName) {
    target->kind = Target::Kind::kName;
    target->id = static_cast<const NameExpr&>(expr).id;
    return true;
  }
  if (expr.kind == ExprKind::kTuple) {
    target->kind = Target::Kind::kTuple;
    for (const ExprPtr& item : static_cast<const SequenceExpr&>(expr).items) {
      if (!ToTarget(*item, &target->items.emplace_back())) return false;
    }
    return true;
  }
  return stream_.Fail("can't assign to this expression", expr.line);
}

}  // namespace polysil::jinja

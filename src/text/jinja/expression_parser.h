// The expression half of the parser. Every method returns null (or false) once the stream has
// failed.
#pragma once

#include <initializer_list>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace polysil::jinja {

class ExpressionParser final {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  ExprPtr ParseExpression(bool with_condition = true);
  // One expression, or a tuple where commas follow. `end_name`: a name that ends it too.
  ExprPtr ParseTuple(bool with_condition = true, std::string_view end_name = {},
                     bool parenthesized = false);
  // `|filter(...)|...` onto `base`; with `inline_start` the first bar is left out. `base` may be
  // null, and the result then is null where no filter follows.
  bool ParseFilters(bool inline_start, ExprPtr* base);
  // A target of `set` or `for`.
  bool ParseTarget(bool with_attribute, std::string_view end_name, Target* target);
  bool ParseTargetName(int32_t* id, std::string* name);

 private:
  ExprPtr ParseCondition();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  ExprPtr ParseNumber();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr base);
  ExprPtr ParseFilterExpression(ExprPtr base);
  ExprPtr ParseSubscript(ExprPtr base);
  ExprPtr ParseSubscripted(ExprPtr* base, bool* is_slice);
  ExprPtr ParseCall(ExprPtr callee);
  ExprPtr ParseTest(ExprPtr base);
  bool ParseArguments(CallArguments* arguments);
  bool ParseDottedName(std::string* name);
  bool ToTarget(const Expr& expr, Target* target);

  // Sets line and height; null where the expression is too high or a child is missing.
  ExprPtr Finish(ExprPtr expr, int32_t line, std::initializer_list<const Expr*> children);
  ExprPtr FinishCall(ExprPtr expr, int32_t line, const Expr* base, const CallArguments& arguments);

  TokenStream& stream_;
};

}  // namespace polysil::jinja

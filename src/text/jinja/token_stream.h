// TokenStream: the tokens of one template with a cursor, and what the two halves of the parser
// share: the first error, the ids of names, the enclosing macros. Owned by one call of Parse().
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace polysil::jinja {

class TokenStream final {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) NameId(name);
  }

  const Token& current() const { return tokens_[position_]; }
  const Token& next() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_operator(std::string_view op) const {
    return at(TokenKind::kOperator) && current().text == op;
  }
  bool at_name(std::string_view name) const {
    return at(TokenKind::kName) && current().text == name;
  }
  void Skip() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  // False and an error where the current token is another.
  bool Expect(TokenKind kind);
  bool ExpectOperator(std::string_view op);
  bool ExpectName(std::string_view name);

  // Keeps the first error; always false. A broken token takes precedence over what it led to.
  bool Fail(std::string message) { return Fail(std::move(message), current().line); }
  bool Fail(std::string message, int32_t line);
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  int32_t error_line() const { return error_line_; }
  // The current token in words.
  std::string Describe() const;

  int32_t NameId(const std::string& name);
  std::vector<std::string> TakeNames() { return std::move(names_); }

  // A filter or test that does not exist is an error at once, unless a condition guards it.
  struct Unknown {
    std::string message;
    int32_t line;
    bool guarded;
  };
  std::vector<Unknown> unknown;
  bool guarded = false;
  // The macros and call blocks around the current token.
  std::vector<MacroSignature*> macros;
  int loops = 0;    // around the current token, within its macro
  int nesting = 0;  // of brackets and blocks

 private:
  bool Unexpected(std::string_view expected);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  std::string error_;
  int32_t error_line_ = 0;
  std::map<std::string, int32_t> ids_;
  std::vector<std::string> names_;
};

// Counts a level of nesting while it lives.
class NestingGuard final {
 public:
  explicit NestingGuard(TokenStream& stream);
  ~NestingGuard() { --stream_.nesting; }
  NestingGuard(const NestingGuard&) = delete;
  NestingGuard& operator=(const NestingGuard&) = delete;
  bool ok() const { return ok_; }

 private:
  TokenStream& stream_;
  bool ok_;
};

}  // namespace polysil::jinja

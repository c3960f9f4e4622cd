#include "text/jinja/token_stream.h"

#include "text/jinja/parser.h"

namespace polysil::jinja {
namespace {

std::string KindName(TokenKind kind) {
  switch (kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kName:
      return "name";
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    case TokenKind::kOperator:
      return "operator";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kError:
      return "error";
  }
  return {};
}

}  // namespace

std::string TokenStream::Describe() const {
  const Token& token = current();
  if (token.kind == TokenKind::kName || token.kind == TokenKind::kOperator) return token.text;
  return KindName(token.kind);
}

bool TokenStream::SkipName(std::string_view name) {
  if (!at_name(name)) return false;
  Skip();
  return true;
}

bool TokenStream::SkipOperator(std::string_view op) {
  if (!at_operator(op)) return false;
  Skip();
  return true;
}

bool TokenStream::Unexpected(std::string_view expected) {
  if (at(TokenKind::kEnd)) {
    return Fail("unexpected end of template, expected '" + std::string(expected) + "'.");
  }
  return Fail("expected token '" + std::string(expected) + "', got '" + Describe() + "'");
}

bool TokenStream::Expect(TokenKind kind) {
  if (!at(kind)) return Unexpected(KindName(kind));
  Skip();
  return true;
}

bool TokenStream::ExpectOperator(std::string_view op) {
  return SkipOperator(op) || Unexpected(op);
}

bool TokenStream::ExpectName(std::string_view name) {
  return SkipName(name) || Unexpected(name);
}

bool TokenStream::Fail(std::string message, int32_t line) {
  if (failed()) return false;
  if (at(TokenKind::kError)) {
    error_ = current().text;
    error_line_ = current().line;
  } else {
    error_ = std::move(message);
    error_line_ = line;
  }
  return false;
}

int32_t TokenStream::NameId(const std::string& name) {
  const auto [found, inserted] = ids_.emplace(name, static_cast<int32_t>(names_.size()));
  if (inserted) names_.push_back(name);
  return found->second;
}

NestingGuard::NestingGuard(TokenStream& stream) : stream_(stream) {
  ok_ = ++stream.nesting <= kNestingMax;
  if (!ok_) {
    stream.Fail("the template is nested more than " + std::to_string(kNestingMax) + " deep");
  }
}

}  // namespace polysil::jinja

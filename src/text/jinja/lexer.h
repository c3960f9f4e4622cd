// Lexer of the template language: source text to tokens, with trim_blocks and lstrip_blocks on, as
// chat templates expect. An error in the source becomes the last token, so that the parser meets
// errors in the order of the source. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace polysil::jinja {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
  kError,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int32_t line = 1;
  // Data, name, operator as written; a string unescaped; a number without underscores (integers
  // keep the 0x of their base); the message of an error.
  std::string text;
};

// Ends with kEnd or kError.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace polysil::jinja

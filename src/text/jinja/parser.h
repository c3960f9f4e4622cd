// Parser of the template language: source text to an Ast. Bounded: the size of the source, the
// nesting of expressions and statements. Pure function.
#pragma once

#include <memory>
#include <string_view>

#include "polysil/base/status.h"
#include "text/jinja/ast.h"

namespace polysil::jinja {

// What is kept in memory of a template stays within a small multiple of this.
inline constexpr size_t kSourceBytesMax = size_t{1} << 20;
// Brackets, unary operators, blocks within one another.
inline constexpr int kNestingMax = 150;
// Operators applied to each other's results, such as a + b + c.
inline constexpr int kExpressionHeightMax = 500;

// A syntax error is INVALID_ARGUMENT with the line.
StatusOr<std::unique_ptr<const Ast>> Parse(std::string_view source);

}  // namespace polysil::jinja

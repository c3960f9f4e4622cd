// RegexSyntax: a regular expression as a tree, for the dialect that tokenizer files use
// (Oniguruma's: Unicode classes, $ at every line end, nested and intersected classes). Not a
// matcher: regex_dfa.h is. A value.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "polysil/base/status.h"
#include "text/codepoint_set.h"

namespace polysil {

struct RegexNode {
  enum class Kind {
    kEmpty,      // matches the empty string
    kSet,        // one character of sets[set]
    kNext,       // empty; the next character is in sets[set], or the text ends and at_end
    kConcat,     // children in order
    kAlternate,  // the first child that leads to a match
    kRepeat,     // child min to max times
  };
  static constexpr int32_t kUnbounded = -1;

  Kind kind = Kind::kEmpty;
  int32_t set = -1;
  bool at_end = false;
  bool greedy = true;
  int32_t min = 0;
  int32_t max = 0;
  std::vector<int32_t> children;  // indices into nodes
};

struct RegexSyntax {
  std::vector<RegexNode> nodes;
  std::vector<CodepointSet> sets;
  int32_t root = 0;
};

// UNIMPLEMENTED: well-formed as far as read, but a feature that is not here (look-behind,
// look-ahead of more than one character, possessive and atomic groups, back references, ^, \b, \A,
// scripts other than Han). INVALID_ARGUMENT: not a regular expression, or too large or too deep.
StatusOr<RegexSyntax> ParseRegex(std::string_view pattern);

}  // namespace polysil

// CodepointSet: a set of Unicode code points as sorted, disjoint, non-adjacent ranges. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace polysil {

class CodepointSet final {
 public:
  struct Range {
    char32_t first;
    char32_t last;  // inclusive
    friend bool operator==(const Range&, const Range&) = default;
  };

  CodepointSet() = default;
  explicit CodepointSet(std::vector<Range> ranges);  // any order, may overlap
  static CodepointSet Of(char32_t code) { return CodepointSet({{code, code}}); }
  static CodepointSet All();

  bool Contains(char32_t code) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }

  CodepointSet Inverted() const;
  CodepointSet Union(const CodepointSet& other) const;
  CodepointSet Intersection(const CodepointSet& other) const;
  // With every character that differs from a member in case only (simple mappings).
  CodepointSet CaseInsensitive() const;

  friend bool operator==(const CodepointSet&, const CodepointSet&) = default;

 private:
  std::vector<Range> ranges_;
};

// The characters with a Unicode property: a general category, short or long ("Lu", "L", "Number",
// "uppercase_letter"), "White_Space", "Any", "Word" or "Han". Nothing for a name not known here.
std::optional<CodepointSet> UnicodeProperty(std::string_view name);

// Often used ones.
const CodepointSet& WhiteSpace();      // \s
const CodepointSet& DecimalDigits();   // \d
const CodepointSet& WordCharacters();  // \w: letters, marks, decimal digits, connectors

bool IsWhiteSpace(char32_t code);
bool IsWordCharacter(char32_t code);
bool IsPunctuation(char32_t code);  // category P
bool IsNumber(char32_t code);       // category N
bool IsMark(char32_t code);         // category M

}  // namespace polysil

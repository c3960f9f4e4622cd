#include "text/regex_syntax.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "text/utf8.h"

namespace polysil {
namespace {

using Kind = RegexNode::Kind;

constexpr size_t kPatternBytesMax = 16384;
constexpr int kDepthMax = 64;
constexpr int32_t kRepeatMax = 1000;

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  StatusOr<RegexSyntax> Parse() {
    if (pattern_.size() > kPatternBytesMax) {
      return InvalidArgument("regular expression has {} bytes, at most {} are accepted",
                             pattern_.size(), kPatternBytesMax);
    }
    ASSIGN_OR_RETURN(syntax_.root, ParseAlternate(0));
    if (!AtEnd()) return Error("unmatched ')'");
    return std::move(syntax_);
  }

 private:
  Status Error(std::string_view what) const {
    return InvalidArgument("regular expression: {} at byte {}", what, at_);
  }
  Status Unsupported(std::string_view what) const {
    return Unimplemented("regular expression: {} at byte {} is not supported", what, at_);
  }

  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek() const { return pattern_[at_]; }
  bool Accept(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  int32_t Add(RegexNode node) {
    syntax_.nodes.push_back(std::move(node));
    return static_cast<int32_t>(syntax_.nodes.size()) - 1;
  }
  int32_t SetIndex(CodepointSet set) {
    const auto found = std::find(syntax_.sets.begin(), syntax_.sets.end(), set);
    if (found != syntax_.sets.end()) return static_cast<int32_t>(found - syntax_.sets.begin());
    syntax_.sets.push_back(std::move(set));
    return static_cast<int32_t>(syntax_.sets.size()) - 1;
  }
  int32_t AddSet(const CodepointSet& set) {
    return Add({.kind = Kind::kSet, .set = SetIndex(ignore_case_ ? set.CaseInsensitive() : set)});
  }
  int32_t AddNext(CodepointSet set, bool at_end) {
    return Add({.kind = Kind::kNext, .set = SetIndex(std::move(set)), .at_end = at_end});
  }

  StatusOr<int32_t> ParseAlternate(int depth);
  StatusOr<int32_t> ParseConcat(int depth);
  StatusOr<int32_t> ParseQuantifiers(int32_t atom);
  StatusOr<int32_t> ParseAtom(int depth);
  StatusOr<int32_t> ParseGroup(int depth);
  StatusOr<int32_t> ParseLookahead(int depth, bool negative);
  StatusOr<bool> ParseFlags();
  StatusOr<CodepointSet> ParseClass(int depth);
  StatusOr<CodepointSet> ParseClassItem(int depth);
  StatusOr<CodepointSet> ParseEscape(bool in_class);
  StatusOr<CodepointSet> ParseProperty(bool inverted);
  StatusOr<char32_t> ParseHex(size_t digits_max);
  StatusOr<char32_t> ParseCharacter();
  bool ParseBraces(int32_t& min, int32_t& max);
  // What a look-ahead at `node` asks of the next character; nothing if it asks for more.
  std::optional<std::pair<CodepointSet, bool>> AsNext(int32_t node) const;

  std::string_view pattern_;
  size_t at_ = 0;
  bool ignore_case_ = false;
  RegexSyntax syntax_;
};

StatusOr<int32_t> Parser::ParseAlternate(int depth) {
  if (depth > kDepthMax) return Error("groups nested too deep");
  const bool ignore_case_outside = ignore_case_;
  std::vector<int32_t> children;
  do {
    ASSIGN_OR_RETURN(const int32_t child, ParseConcat(depth));
    children.push_back(child);
  } while (Accept("|"));
  ignore_case_ = ignore_case_outside;
  if (children.size() == 1) return children[0];
  return Add({.kind = Kind::kAlternate, .children = std::move(children)});
}

StatusOr<int32_t> Parser::ParseConcat(int depth) {
  std::vector<int32_t> children;
  while (!AtEnd() && Peek() != '|' && Peek() != ')') {
    ASSIGN_OR_RETURN(const int32_t atom, ParseAtom(depth));
    ASSIGN_OR_RETURN(const int32_t child, ParseQuantifiers(atom));
    children.push_back(child);
  }
  if (children.size() == 1) return children[0];
  return Add({.kind = Kind::kConcat, .children = std::move(children)});
}

StatusOr<int32_t> Parser::ParseQuantifiers(int32_t atom) {
  for (int count = 0; !AtEnd(); ++count) {
    int32_t min = 0;
    int32_t max = RegexNode::kUnbounded;
    if (Accept("*")) {
    } else if (Accept("+")) {
      min = 1;
    } else if (Accept("?")) {
      max = 1;
    } else if (Peek() == '{' && ParseBraces(min, max)) {
      if (min > kRepeatMax || max > kRepeatMax) return Error("repeat count too large");
      if (max != RegexNode::kUnbounded && max < min) return Error("repeat counts out of order");
    } else {
      break;
    }
    if (count == kDepthMax) return Error("too many quantifiers");
    if (!AtEnd() && Peek() == '+') return Unsupported("a possessive quantifier");
    const bool greedy = !Accept("?");
    atom =
        Add({.kind = Kind::kRepeat, .greedy = greedy, .min = min, .max = max, .children = {atom}});
  }
  return atom;
}

// "{3}", "{1,3}", "{2,}", "{,2}"; anything else is literal text.
bool Parser::ParseBraces(int32_t& min, int32_t& max) {
  const size_t begin = at_;
  const auto number = [this](int32_t& value) {
    const size_t first = at_;
    value = 0;
    while (!AtEnd() && Peek() >= '0' && Peek() <= '9') {
      value = std::min(value * 10 + (Peek() - '0'), kRepeatMax + 1);
      ++at_;
    }
    return at_ > first;
  };
  ++at_;
  const bool has_min = number(min);
  bool valid = has_min;
  max = min;
  if (Accept(",")) {
    const bool has_max = number(max);
    if (!has_max) max = RegexNode::kUnbounded;
    valid = has_min || has_max;
  }
  if (valid && Accept("}")) return true;
  at_ = begin;
  return false;
}

StatusOr<int32_t> Parser::ParseAtom(int depth) {
  switch (Peek()) {
    case '(':
      return ParseGroup(depth);
    case '[': {
      ASSIGN_OR_RETURN(const CodepointSet set, ParseClass(depth));
      return AddSet(set);
    }
    case '.':
      ++at_;
      return AddSet(CodepointSet::Of('\n').Inverted());
    case '$':
      ++at_;
      return AddNext(CodepointSet::Of('\n'), true);
    case '^':
      return Unsupported("'^'");
    case '*':
    case '+':
    case '?':
      return Error("nothing to repeat");
    case '\\': {
      if (Accept("\\z")) return AddNext(CodepointSet(), true);
      ASSIGN_OR_RETURN(const CodepointSet set, ParseEscape(false));
      return AddSet(set);
    }
    default: {
      ASSIGN_OR_RETURN(const char32_t code, ParseCharacter());
      return AddSet(CodepointSet::Of(code));
    }
  }
}

StatusOr<int32_t> Parser::ParseGroup(int depth) {
  ++at_;  // (
  if (Accept("?=")) return ParseLookahead(depth, false);
  if (Accept("?!")) return ParseLookahead(depth, true);
  const std::string_view rest = pattern_.substr(at_);
  if (rest.starts_with("?<=") || rest.starts_with("?<!")) return Unsupported("a look-behind");
  const bool ignore_case_outside = ignore_case_;
  if (Accept("?<") || Accept("?P<")) {
    const size_t close = pattern_.find('>', at_);
    if (close == std::string_view::npos) return Error("unterminated group name");
    at_ = close + 1;
  } else if (Accept("?")) {
    ASSIGN_OR_RETURN(const bool is_group, ParseFlags());
    // "(?i)" alone holds to the end of the group around it, where ParseAlternate restores it.
    if (!is_group) return Add({.kind = Kind::kEmpty});
  }
  ASSIGN_OR_RETURN(const int32_t node, ParseAlternate(depth + 1));
  if (!Accept(")")) return Error("missing ')'");
  ignore_case_ = ignore_case_outside;
  return node;
}

// After "(?": flags up to ":" (true) or ")" (false).
StatusOr<bool> Parser::ParseFlags() {
  bool value = true;
  while (!AtEnd()) {
    if (Accept(":")) return true;
    if (Accept(")")) return false;
    if (Accept("-")) {
      value = false;
    } else if (Accept("i")) {
      ignore_case_ = value;
    } else {
      return Unsupported("this kind of group");
    }
  }
  return Error("missing ')'");
}

StatusOr<int32_t> Parser::ParseLookahead(int depth, bool negative) {
  ASSIGN_OR_RETURN(const int32_t node, ParseAlternate(depth + 1));
  if (!Accept(")")) return Error("missing ')'");
  const auto next = AsNext(node);
  if (!next) return Unsupported("a look-ahead of other than one character");
  if (negative) return AddNext(next->first.Inverted(), !next->second);
  return AddNext(next->first, next->second);
}

std::optional<std::pair<CodepointSet, bool>> Parser::AsNext(int32_t index) const {
  const RegexNode& node = syntax_.nodes[static_cast<size_t>(index)];
  if (node.kind == Kind::kSet || node.kind == Kind::kNext) {
    return std::pair(syntax_.sets[static_cast<size_t>(node.set)], node.at_end);
  }
  if (node.kind != Kind::kAlternate) return std::nullopt;
  std::pair<CodepointSet, bool> any;
  for (const int32_t child : node.children) {
    const auto next = AsNext(child);
    if (!next) return std::nullopt;
    any = {any.first.Union(next->first), any.second || next->second};
  }
  return any;
}

StatusOr<CodepointSet> Parser::ParseClass(int depth) {
  if (depth > kDepthMax) return Error("classes nested too deep");
  ++at_;  // [
  const bool inverted = Accept("^");
  CodepointSet whole = CodepointSet::All();  // of the operands of && so far
  std::vector<CodepointSet::Range> ranges;
  for (bool first = true;; first = false) {
    if (AtEnd()) return Error("missing ']'");
    if (!first && Accept("]")) break;
    if (Accept("&&")) {
      whole = whole.Intersection(CodepointSet(std::move(ranges)));
      ranges.clear();
      continue;
    }
    ASSIGN_OR_RETURN(const CodepointSet item, ParseClassItem(depth));
    ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
  }
  CodepointSet set = whole.Intersection(CodepointSet(std::move(ranges)));
  // Case variants join before the inversion: (?i)[^k] is not K either.
  if (ignore_case_) set = set.CaseInsensitive();
  return inverted ? set.Inverted() : set;
}

// A nested class, an escape for a set, one character or a range of them.
StatusOr<CodepointSet> Parser::ParseClassItem(int depth) {
  if (Peek() == '[') {
    if (pattern_.substr(at_).starts_with("[:")) return Unsupported("a POSIX class");
    return ParseClass(depth + 1);
  }
  CodepointSet first;
  if (Peek() == '\\') {
    ASSIGN_OR_RETURN(first, ParseEscape(true));
  } else {
    ASSIGN_OR_RETURN(const char32_t code, ParseCharacter());
    first = CodepointSet::Of(code);
  }
  const bool one = first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
  const std::string_view rest = pattern_.substr(at_);
  if (!one || rest.size() < 2 || rest[0] != '-' || rest[1] == ']' || rest[1] == '[') return first;
  ++at_;  // -
  CodepointSet last;
  if (Peek() == '\\') {
    ASSIGN_OR_RETURN(last, ParseEscape(true));
  } else {
    ASSIGN_OR_RETURN(const char32_t code, ParseCharacter());
    last = CodepointSet::Of(code);
  }
  if (last.ranges().size() != 1 || last.ranges()[0].first != last.ranges()[0].last) {
    return Error("a class that ends a range");
  }
  const char32_t low = first.ranges()[0].first;
  const char32_t high = last.ranges()[0].first;
  if (high < low) return Error("a range out of order");
  return CodepointSet({{low, high}});
}

StatusOr<CodepointSet> Parser::ParseEscape(bool in_class) {
  ++at_;  // the backslash
  if (AtEnd()) return Error("a backslash at the end");
  const char c = Peek();
  if (static_cast<uint8_t>(c) >= 0x80) {
    ASSIGN_OR_RETURN(const char32_t code, ParseCharacter());
    return CodepointSet::Of(code);
  }
  ++at_;
  switch (c) {
    case 's':
      return WhiteSpace();
    case 'S':
      return WhiteSpace().Inverted();
    case 'd':
      return DecimalDigits();
    case 'D':
      return DecimalDigits().Inverted();
    case 'w':
      return WordCharacters();
    case 'W':
      return WordCharacters().Inverted();
    case 'n':
      return CodepointSet::Of('\n');
    case 'r':
      return CodepointSet::Of('\r');
    case 't':
      return CodepointSet::Of('\t');
    case 'v':
      return CodepointSet::Of('\v');
    case 'f':
      return CodepointSet::Of('\f');
    case 'a':
      return CodepointSet::Of('\a');
    case 'e':
      return CodepointSet::Of(0x1B);
    case 'p':
      return ParseProperty(false);
    case 'P':
      return ParseProperty(true);
    case 'x': {
      const bool braces = Accept("{");
      ASSIGN_OR_RETURN(const char32_t code, ParseHex(braces ? 8 : 2));
      if (braces && !Accept("}")) return Error("missing '}'");
      return CodepointSet::Of(code);
    }
    case 'u': {
      ASSIGN_OR_RETURN(const char32_t code, ParseHex(4));
      return CodepointSet::Of(code);
    }
    default:
      break;
  }
  const bool alphanumeric =
      (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (c == '0' && (AtEnd() || Peek() < '0' || Peek() > '7')) return CodepointSet::Of(0);
  if (alphanumeric) return Unsupported(in_class ? "this escape in a class" : "this escape");
  return CodepointSet::Of(static_cast<char32_t>(c));
}

StatusOr<CodepointSet> Parser::ParseProperty(bool inverted) {
  std::string_view name;
  if (Accept("{")) {
    if (Accept("^")) inverted = !inverted;
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) return Error("missing '}'");
    name = pattern_.substr(at_, close - at_);
    at_ = close + 1;
  } else {
    if (AtEnd()) return Error("a property without a name");
    name = pattern_.substr(at_, 1);
    ++at_;
  }
  const auto set = UnicodeProperty(name);
  if (!set) return Unsupported("this Unicode property");
  return inverted ? set->Inverted() : *set;
}

StatusOr<char32_t> Parser::ParseHex(size_t digits_max) {
  char32_t code = 0;
  size_t digits = 0;
  for (; digits < digits_max && !AtEnd(); ++digits, ++at_) {
    const char c = Peek();
    const bool decimal = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!decimal && (lower < 'a' || lower > 'f')) break;
    code = code * 16 + static_cast<char32_t>(decimal ? c - '0' : lower - 'a' + 10);
    if (code > kCodepointMax) return Error("a code point above 10FFFF");
  }
  if (digits == 0) return Error("a code point without digits");
  return code;
}

StatusOr<char32_t> Parser::ParseCharacter() {
  const Utf8Char c = DecodeUtf8(pattern_.substr(at_));
  if (!c.well_formed) return Error("ill-formed UTF-8");
  at_ += c.bytes;
  return c.code;
}

}  // namespace

StatusOr<RegexSyntax> ParseRegex(std::string_view pattern) {
  return Parser(pattern).Parse();
}

}  // namespace polysil

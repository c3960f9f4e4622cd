#include "text/added_tokens.h"

#include <algorithm>

#include "polysil/base/check.h"
#include "text/codepoint_set.h"
#include "text/utf8.h"

namespace polysil {
namespace {

// Whether the rule lets the token be at [begin, end) of the searched text.
bool Allows(const AddedToken& token, const ControlRule& rule, size_t begin, size_t end) {
  if (!token.control) return true;
  if (!rule.allowed || (token.by_place && rule.untrusted.empty())) return false;
  begin += rule.offset;
  end += rule.offset;
  const auto first =
      std::partition_point(rule.untrusted.begin(), rule.untrusted.end(),
                           [begin](const ByteSpan& span) { return span.end <= begin; });
  return std::none_of(first, rule.untrusted.end(), [&](const ByteSpan& span) {
    return span.begin < end && span.begin < span.end;
  });
}

// The start of the character that ends at `end` > 0.
size_t PreviousCharacter(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// With the joiners, as in the reference library.
bool IsPartOfWord(char32_t code) {
  return IsWordCharacter(code) || code == 0x200C || code == 0x200D;
}

bool WordBefore(std::string_view text, size_t at) {
  return at > 0 && IsPartOfWord(DecodeUtf8(text.substr(PreviousCharacter(text, at))).code);
}

bool WordAfter(std::string_view text, size_t at) {
  return at < text.size() && IsPartOfWord(DecodeUtf8(text.substr(at)).code);
}

size_t StripLeft(std::string_view text, size_t at, size_t stop) {
  while (at > stop) {
    const size_t before = PreviousCharacter(text, at);
    if (before < stop || !IsWhiteSpace(DecodeUtf8(text.substr(before)).code)) break;
    at = before;
  }
  return at;
}

size_t StripRight(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (!IsWhiteSpace(c.code)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

void AddedTokens::Add(AddedToken token) {
  CHECK(!token.text.empty() && token.text.size() <= kTextBytesMax);
  int32_t node = kNone;
  for (const char c : token.text) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = node == kNone ? root_[byte] : Child(node, byte);
    if (next == kNone) {
      next = static_cast<int32_t>(nodes_.size());
      Node fresh{.byte = byte};
      int32_t& head = node == kNone ? root_[byte] : nodes_[static_cast<size_t>(node)].child;
      if (node != kNone) fresh.sibling = head;
      head = next;
      nodes_.push_back(fresh);
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

int32_t AddedTokens::Child(int32_t node, uint8_t byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].child;
  while (child != kNone && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].sibling;
  }
  return child;
}

AddedTokens::Match AddedTokens::LongestAt(std::string_view text, size_t at,
                                          const ControlRule& rule) const {
  Match longest;
  int32_t node = root_[static_cast<uint8_t>(text[at])];
  for (size_t end = at + 1; node != kNone; ++end) {
    const int32_t token = nodes_[static_cast<size_t>(node)].token;
    if (token != kNone) {
      if (Allows(tokens_[static_cast<size_t>(token)], rule, at, end)) longest = {token, end};
    }
    if (end == text.size()) break;
    node = Child(node, static_cast<uint8_t>(text[end]));
  }
  return longest;
}

void AddedTokens::Split(std::string_view text, const ControlRule& rule,
                        std::vector<TextSegment>& out) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    if (root_[static_cast<uint8_t>(text[at])] == kNone) {
      ++at;
      continue;
    }
    const Match match = LongestAt(text, at, rule);
    if (match.token == kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    size_t begin = at;
    size_t end = match.end;
    at = match.end;
    if (token.single_word && (WordBefore(text, begin) || WordAfter(text, end))) continue;
    if (begin < done) continue;  // in the white space that the token before has taken
    if (token.strip_left) begin = StripLeft(text, begin, done);
    if (token.strip_right) end = StripRight(text, end);
    if (done < begin) out.push_back({done, begin});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size()});
}

}  // namespace polysil

// AddedTokens: finds the tokens that are matched in the text itself, before it is split: control
// tokens ("<|im_end|>") and others that the file adds to the vocabulary. Immutable, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace polysil {

struct AddedToken {
  std::string text;  // not empty
  TokenId id = 0;
  bool control = false;      // matched only where the caller allows control tokens
  bool by_place = false;     // and only if the rule knows trusted and untrusted places
  bool single_word = false;  // only where no word character is next to it
  bool strip_left = false;   // takes the white space before it
  bool strip_right = false;  // takes the white space after it
};

// Where control tokens may be matched.
struct ControlRule {
  bool allowed = false;
  std::span<const ByteSpan> untrusted = {};  // not where one of these has a byte; rising, disjoint
  size_t offset = 0;  // of the text that is searched, in the text that the spans are about
};

// A stretch of text: an added token, or text between them (id kText).
struct TextSegment {
  static constexpr TokenId kText = -1;
  size_t begin = 0;
  size_t end = 0;
  TokenId id = kText;
};

class AddedTokens final {
 public:
  // Longer ones are refused at load: a search may look at this many bytes for each of the text.
  static constexpr size_t kTextBytesMax = 1024;

  AddedTokens() { root_.fill(kNone); }
  // Of two with the same text the later one counts.
  void Add(AddedToken token);
  bool empty() const { return tokens_.empty(); }

  // Appends the segments of `text`, in order, without empty ones. Of the tokens that begin at one
  // place the longest counts; the first place counts.
  void Split(std::string_view text, const ControlRule& rule, std::vector<TextSegment>& out) const;

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t child = kNone;    // the first one
    int32_t sibling = kNone;  // the next child of the same parent
    int32_t token = kNone;    // that ends here
    uint8_t byte = 0;
  };
  struct Match {
    int32_t token = kNone;
    size_t end = 0;
  };

  int32_t Child(int32_t node, uint8_t byte) const;
  Match LongestAt(std::string_view text, size_t at, const ControlRule& rule) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_;  // first bytes
};

}  // namespace polysil

// RegexDfa: a regular expression compiled to a table, one look-up per character. Finds what a
// backtracking matcher would (the first alternative that leads to a match), in time linear in the
// text whatever the text and the expression are. Immutable, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "polysil/base/status.h"
#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace polysil {

class RegexDfa final {
 public:
  // UNIMPLEMENTED: too many states or character classes.
  static StatusOr<RegexDfa> Build(const RegexSyntax& syntax);

  // One search through one text. Holds references to both.
  class Search {
   public:
    Search(const RegexDfa& dfa, std::string_view text) : dfa_(dfa), text_(text) {}
    // The next match, [begin, end), perhaps empty; nothing after the last one. An empty match right
    // after a match is skipped.
    std::optional<std::pair<size_t, size_t>> Next();

   private:
    static constexpr size_t kNone = static_cast<size_t>(-1);
    size_t MatchAt(size_t begin);
    bool Checkpoint(uint32_t state, size_t at, size_t last);
    void RememberFailure(size_t in_vain_from, size_t at);

    const RegexDfa& dfa_;
    std::string_view text_;
    size_t at_ = 0;
    size_t last_end_ = kNone;
    // Made by the first scan that is long enough for a checkpoint.
    struct Memory {
      // Where a long scan in vain came through, so that the next one stops there. Without it "\s+$"
      // would scan a run of spaces once from each of them.
      std::unordered_set<uint64_t> failed;
      std::vector<std::pair<uint32_t, size_t>> trail;  // (state, position) of the scan in work
    };
    std::unique_ptr<Memory> memory_;
  };

 private:
  friend class RegexDfaBuilder;
  static constexpr uint32_t kAccept = 1;  // a match ends before the character just looked at
  static constexpr uint32_t kDead = 0;
  static constexpr uint32_t kStart = 1;
  static constexpr size_t kBlockBits = 7;

  uint32_t ClassOf(char32_t code) const {
    return blocks_[(size_t{block_of_[code >> kBlockBits]} << kBlockBits) +
                   (code & ((1u << kBlockBits) - 1))];
  }

  std::vector<uint16_t> block_of_;
  std::vector<uint8_t> blocks_;
  std::array<uint8_t, 128> ascii_class_{};
  std::array<bool, 128> ascii_starts_{};  // whether a match can begin with it, or before it
  uint32_t stride_ = 0;                   // classes, and one for the end of the text
  std::vector<uint32_t> transitions_;     // [state, class]: next state * 2 + kAccept
};

}  // namespace polysil

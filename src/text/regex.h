// Regex: a compiled regular expression of a tokenizer. A table-driven matcher (regex_dfa.h) where
// the expression allows it, else PCRE2 with bounded effort. Immutable, thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "polysil/base/status.h"
#include "text/regex_dfa.h"

namespace polysil {

class PcreRegex;
class PcreSearch;

class Regex final {
 public:
  static StatusOr<Regex> Compile(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // One search through one text. Holds references to both.
  class Search {
   public:
    Search(const Regex& regex, std::string_view text);
    ~Search();
    // The next match, [begin, end), as RegexDfa::Search gives it.
    std::optional<std::pair<size_t, size_t>> Next();

   private:
    std::optional<RegexDfa::Search> dfa_;
    std::unique_ptr<PcreSearch> pcre_;
  };

  bool is_table() const { return dfa_.has_value(); }

 private:
  Regex();

  std::optional<RegexDfa> dfa_;
  std::unique_ptr<PcreRegex> pcre_;
};

}  // namespace polysil

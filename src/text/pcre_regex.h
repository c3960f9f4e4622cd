// PcreRegex: a regular expression run by PCRE2, for features that RegexDfa lacks. Effort is
// bounded: where PCRE2 gives up, the rest of the text counts as without a match. Immutable,
// thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "polysil/base/status.h"

namespace polysil {

class PcreRegex final {
 public:
  static StatusOr<std::unique_ptr<PcreRegex>> Compile(std::string_view pattern);
  ~PcreRegex();
  PcreRegex(const PcreRegex&) = delete;
  PcreRegex& operator=(const PcreRegex&) = delete;

 private:
  friend class PcreSearch;
  PcreRegex() = default;
  void* code_ = nullptr;  // pcre2_code
};

// One search through one text. Holds references to both.
class PcreSearch final {
 public:
  PcreSearch(const PcreRegex& regex, std::string_view text);
  ~PcreSearch();
  PcreSearch(const PcreSearch&) = delete;
  PcreSearch& operator=(const PcreSearch&) = delete;
  std::optional<std::pair<size_t, size_t>> Next();

 private:
  const PcreRegex& regex_;
  std::string_view text_;
  std::string cleaned_;            // where the text is not well-formed UTF-8
  void* match_data_ = nullptr;     // pcre2_match_data
  void* match_context_ = nullptr;  // pcre2_match_context
  void* jit_stack_ = nullptr;      // pcre2_jit_stack
  size_t at_ = 0;
  size_t last_end_ = static_cast<size_t>(-1);
};

}  // namespace polysil

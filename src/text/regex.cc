#include "text/regex.h"

#include "text/pcre_regex.h"
#include "text/regex_syntax.h"

namespace polysil {
namespace {

StatusOr<RegexDfa> CompileTable(std::string_view pattern) {
  ASSIGN_OR_RETURN(const RegexSyntax syntax, ParseRegex(pattern));
  return RegexDfa::Build(syntax);
}

}  // namespace

Regex::Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  Regex regex;
  auto table = CompileTable(pattern);
  if (table.ok()) {
    regex.dfa_ = *std::move(table);
    return regex;
  }
  if (table.status().code() != StatusCode::kUnimplemented) return table.status();
  ASSIGN_OR_RETURN(regex.pcre_, PcreRegex::Compile(pattern));
  return regex;
}

Regex::Search::Search(const Regex& regex, std::string_view text) {
  if (regex.dfa_) {
    dfa_.emplace(*regex.dfa_, text);
  } else {
    pcre_ = std::make_unique<PcreSearch>(*regex.pcre_, text);
  }
}

Regex::Search::~Search() = default;

std::optional<std::pair<size_t, size_t>> Regex::Search::Next() {
  return dfa_ ? dfa_->Next() : pcre_->Next();
}

}  // namespace polysil

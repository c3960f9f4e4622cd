#include "text/codepoint_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>

#include "text/utf8.h"

namespace polysil {
namespace {

using Range = CodepointSet::Range;

// In the order of utf8proc_category_t.
constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// Long names in loose form (lower case, no separators).
struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kLongNames[] = {{"letter", "L"},
                                   {"uppercaseletter", "Lu"},
                                   {"lowercaseletter", "Ll"},
                                   {"titlecaseletter", "Lt"},
                                   {"modifierletter", "Lm"},
                                   {"otherletter", "Lo"},
                                   {"mark", "M"},
                                   {"nonspacingmark", "Mn"},
                                   {"spacingmark", "Mc"},
                                   {"enclosingmark", "Me"},
                                   {"number", "N"},
                                   {"decimalnumber", "Nd"},
                                   {"letternumber", "Nl"},
                                   {"othernumber", "No"},
                                   {"punctuation", "P"},
                                   {"connectorpunctuation", "Pc"},
                                   {"dashpunctuation", "Pd"},
                                   {"openpunctuation", "Ps"},
                                   {"closepunctuation", "Pe"},
                                   {"initialpunctuation", "Pi"},
                                   {"finalpunctuation", "Pf"},
                                   {"otherpunctuation", "Po"},
                                   {"symbol", "S"},
                                   {"mathsymbol", "Sm"},
                                   {"currencysymbol", "Sc"},
                                   {"modifiersymbol", "Sk"},
                                   {"othersymbol", "So"},
                                   {"separator", "Z"},
                                   {"spaceseparator", "Zs"},
                                   {"lineseparator", "Zl"},
                                   {"paragraphseparator", "Zp"},
                                   {"other", "C"},
                                   {"control", "Cc"},
                                   {"format", "Cf"},
                                   {"unassigned", "Cn"},
                                   {"privateuse", "Co"},
                                   {"surrogate", "Cs"}};

// Script=Han of Unicode 15; utf8proc has no scripts.
constexpr Range kHan[] = {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},
                          {0x3005, 0x3005},   {0x3007, 0x3007},   {0x3021, 0x3029},
                          {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},
                          {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
                          {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
                          {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0},
                          {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {0x31350, 0x323AF}};

constexpr Range kWhiteSpace[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

// Alphabetic symbols: letters in circles and squares.
constexpr Range kAlphabeticSymbols[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

using CategoryRanges = std::array<std::vector<Range>, kCategoryNames.size()>;

CategoryRanges BuildCategoryRanges() {
  CategoryRanges ranges;
  for (char32_t code = 0; code <= kCodepointMax; ++code) {
    const auto category = static_cast<size_t>(utf8proc_category(static_cast<int32_t>(code)));
    std::vector<Range>& of = ranges[category];
    if (!of.empty() && of.back().last + 1 == code) {
      of.back().last = code;
    } else {
      of.push_back({code, code});
    }
  }
  return ranges;
}

// `name` is one letter (a group) or two (one category); as utf8proc_category_string, but by name.
std::optional<CodepointSet> ByCategory(std::string_view name) {
  static const CategoryRanges all = BuildCategoryRanges();
  std::vector<Range> ranges;
  bool found = false;
  for (size_t i = 0; i < kCategoryNames.size(); ++i) {
    if (kCategoryNames[i] != name && kCategoryNames[i].substr(0, 1) != name) continue;
    found = true;
    ranges.insert(ranges.end(), all[i].begin(), all[i].end());
  }
  if (!found) return std::nullopt;
  return CodepointSet(std::move(ranges));
}

CodepointSet MustHave(std::string_view name) {
  return *ByCategory(name);
}

std::string LooseName(std::string_view name) {
  std::string loose;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    loose.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return loose;
}

template <size_t n>
CodepointSet FromTable(const Range (&table)[n]) {
  return CodepointSet(std::vector<Range>(std::begin(table), std::end(table)));
}

// Characters outside ASCII that fold to an ASCII letter.
constexpr char32_t kLongS = 0x17F;
constexpr char32_t kKelvinSign = 0x212A;

void AddCaseVariants(char32_t code, std::vector<Range>& out) {
  const auto add = [&out](int32_t c) {
    out.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  };
  const auto c = static_cast<int32_t>(code);
  const int32_t lower = utf8proc_tolower(c);
  const int32_t upper = utf8proc_toupper(c);
  for (const int32_t variant : {lower, upper, utf8proc_totitle(c), utf8proc_tolower(upper)}) {
    if (variant != c) add(variant);
  }
  if (lower == 's') add(kLongS);
  if (lower == 'k') add(kKelvinSign);
}

}  // namespace

CodepointSet::CodepointSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodepointSet CodepointSet::All() {
  return CodepointSet({{0, kCodepointMax}});
}

bool CodepointSet::Contains(char32_t code) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && std::prev(after)->last >= code;
}

CodepointSet CodepointSet::Inverted() const {
  CodepointSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodepointMax) result.ranges_.push_back({next, kCodepointMax});
  return result;
}

CodepointSet CodepointSet::Union(const CodepointSet& other) const {
  std::vector<Range> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CodepointSet(std::move(both));
}

CodepointSet CodepointSet::Intersection(const CodepointSet& other) const {
  return Inverted().Union(other.Inverted()).Inverted();
}

CodepointSet CodepointSet::CaseInsensitive() const {
  std::vector<Range> all = ranges_;
  for (const Range& range : ranges_) {
    for (char32_t code = range.first; code <= range.last; ++code) AddCaseVariants(code, all);
  }
  return CodepointSet(std::move(all));
}

std::optional<CodepointSet> UnicodeProperty(std::string_view name) {
  if (auto set = ByCategory(name)) return set;
  const std::string loose = LooseName(name);
  for (const LongName& entry : kLongNames) {
    if (loose == entry.name) return ByCategory(entry.category);
  }
  if (loose.size() <= 2 && !loose.empty()) {  // "lu" for "Lu"
    std::string category = loose;
    category[0] = static_cast<char>(category[0] - 'a' + 'A');
    if (auto set = ByCategory(category)) return set;
  }
  if (loose == "any") return CodepointSet::All();
  if (loose == "whitespace" || loose == "space") return WhiteSpace();
  if (loose == "word") return WordCharacters();
  if (loose == "han") return FromTable(kHan);
  return std::nullopt;
}

const CodepointSet& WhiteSpace() {
  static const CodepointSet set = FromTable(kWhiteSpace);
  return set;
}

const CodepointSet& DecimalDigits() {
  static const CodepointSet set = MustHave("Nd");
  return set;
}

const CodepointSet& WordCharacters() {
  static const CodepointSet set = [] {
    CodepointSet all = FromTable(kAlphabeticSymbols);
    for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) all = all.Union(MustHave(category));
    return all;
  }();
  return set;
}

bool IsWhiteSpace(char32_t code) {
  return WhiteSpace().Contains(code);
}
bool IsWordCharacter(char32_t code) {
  return WordCharacters().Contains(code);
}

bool IsPunctuation(char32_t code) {
  static const CodepointSet set = MustHave("P");
  return set.Contains(code);
}

bool IsNumber(char32_t code) {
  static const CodepointSet set = MustHave("N");
  return set.Contains(code);
}

bool IsMark(char32_t code) {
  static const CodepointSet set = MustHave("M");
  return set.Contains(code);
}

}  // namespace polysil

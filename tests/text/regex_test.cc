#include "text/regex.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "polysil/base/check.h"
#include "text/cpu_time.h"
#include "text/pcre_regex.h"

namespace polysil {
namespace {

using Match = std::pair<size_t, size_t>;
using Matches = std::vector<Match>;

template <typename Search>
Matches All(Search& search) {
  Matches matches;
  while (const auto match = search.Next()) matches.push_back(*match);
  return matches;
}

Matches Find(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::Compile(pattern);
  CHECK(regex.ok(), "{}", Message(regex.status()));
  Regex::Search search(*regex, text);
  return All(search);
}

bool IsTable(std::string_view pattern) {
  const auto regex = Regex::Compile(pattern);
  CHECK(regex.ok(), "{}: {}", pattern, Message(regex.status()));
  return regex->is_table();
}

TEST(Regex, PrefersTheFirstAlternativeAndTheGreedyWay) {
  EXPECT_EQ(Find("a|ab", "abab"), (Matches{{0, 1}, {2, 3}}));
  EXPECT_EQ(Find("ab|a", "abab"), (Matches{{0, 2}, {2, 4}}));
  EXPECT_EQ(Find("a+", "aaa"), (Matches{{0, 3}}));
  EXPECT_EQ(Find("a+?", "aaa"), (Matches{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(Find("(?:a|ab)(?:c|bcd)", "abcd"), (Matches{{0, 4}}));
}

TEST(Regex, LooksAtTheNextCharacter) {
  EXPECT_EQ(Find(R"(\s+(?!\S))", "a   b  "), (Matches{{1, 3}, {5, 7}}));
  EXPECT_EQ(Find(R"(a(?=b))", "abaab"), (Matches{{0, 1}, {3, 4}}));
  EXPECT_EQ(Find(R"(a(?!b))", "aba"), (Matches{{2, 3}}));
  EXPECT_EQ(Find(R"(a$)", "a\naa"), (Matches{{0, 1}, {3, 4}}));
  EXPECT_EQ(Find(R"(a\z)", "a\naa"), (Matches{{3, 4}}));
  EXPECT_EQ(Find(R"(a(?=b|$))", "abaca"), (Matches{{0, 1}, {4, 5}}));
}

TEST(Regex, SkipsAnEmptyMatchRightAfterAMatch) {
  EXPECT_EQ(Find("a*", "baac"), (Matches{{0, 0}, {1, 3}, {4, 4}}));
  EXPECT_EQ(Find("", "é"), (Matches{{0, 0}, {2, 2}}));
  EXPECT_EQ(Find("a*", ""), (Matches{{0, 0}}));
}

TEST(Regex, ComparesCaseWithUnicode) {
  EXPECT_EQ(Find("(?i:'s|k)", "'S 's '\u017F K k \u212A"),
            (Matches{{0, 2}, {3, 5}, {6, 9}, {10, 11}, {12, 13}, {14, 17}}));
  EXPECT_EQ(Find("(?i)é(?-i)é", "Éé ÉÉ éé"), (Matches{{0, 4}, {10, 14}}));
  EXPECT_EQ(Find("(?i)[^k]", "kKx"), (Matches{{2, 3}}));
}

TEST(Regex, UsesTheTableUnlessAFeatureNeedsMore) {
  EXPECT_TRUE(IsTable(R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s+)"));
  EXPECT_TRUE(IsTable(R"([\p{L}&&[^\p{Han}]]+)"));
  EXPECT_FALSE(IsTable(R"(\p{L}++)"));
  EXPECT_FALSE(IsTable(R"((?<=a)b)"));
  EXPECT_FALSE(IsTable(R"(\bx)"));
  EXPECT_FALSE(IsTable(R"(\p{Thai}+)"));
  EXPECT_FALSE(IsTable(R"((a)\1)"));
  EXPECT_FALSE(IsTable(R"((?:a{1000}b?){0,30})"));  // too many states
}

TEST(Regex, RefusesWhatIsNone) {
  for (const char* pattern : {"(", ")", "a)", "[a", "*", "a{3,2}", R"(\p{Nonsense})", "[z-a]", "\\",
                              R"(\x{110000})", "(?<n", "a{2000}", "\xFF", R"([\s-a]{0,)"}) {
    const auto regex = Regex::Compile(pattern);
    if (std::string_view(pattern) == R"([\s-a]{0,)") {
      EXPECT_TRUE(regex.ok());  // a brace that opens no count is itself
      continue;
    }
    EXPECT_EQ(regex.status().code(), StatusCode::kInvalidArgument) << pattern;
  }
  EXPECT_FALSE(Regex::Compile(std::string(20000, 'a')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(1000, '(') + "a" + std::string(1000, ')')).ok());
  EXPECT_FALSE(Regex::Compile("a" + std::string(5000, '?')).ok());
  EXPECT_FALSE(Regex::Compile(std::string(1000, '[') + "a" + std::string(1000, ']')).ok());
}

TEST(Regex, TakesIllFormedBytesAsOneUnknownCharacter) {
  EXPECT_EQ(Find(R"(\p{L}+)",
                 "a\xFF"
                 "b\xE2\x82"
                 "c"),
            (Matches{{0, 1}, {2, 3}, {5, 6}}));
  EXPECT_EQ(Find(R"([^a]+)", "a\xE2\x82z"), (Matches{{1, 4}}));
}

std::string RandomPattern(std::mt19937& random, int depth) {
  static constexpr const char* kAtoms[] = {"a", "b", "[ab]", "[^a]", R"(\s)", ".", "c", "é"};
  if (depth == 0) return kAtoms[random() % std::size(kAtoms)];
  const std::string left = RandomPattern(random, depth - 1);
  const std::string right = RandomPattern(random, depth - 1);
  switch (random() % 8) {
    case 0:
      return "(?:" + left + "|" + right + ")";
    case 1:
      return left + right;
    case 2:
      return "(?:" + left + ")*" + right;
    case 3:
      return "(?:" + left + ")+";
    case 4:
      return "(?:" + left + ")?" + right;
    case 5:
      return "(?:" + left + "){1,2}?" + right;
    case 6:
      return left + "(?!b)" + right;
    default:
      return left + "(?=[ab]|$)";
  }
}

// The table against PCRE2, which is also what the table falls back to.
TEST(Regex, EqualsABacktrackingMatcherOnRandomPatterns) {
  std::mt19937 random(3);
  int tables = 0;
  for (int round = 0; round < 1500; ++round) {
    const std::string pattern = RandomPattern(random, 1 + static_cast<int>(random() % 3));
    const auto regex = Regex::Compile(pattern);
    ASSERT_TRUE(regex.ok()) << pattern;
    tables += regex->is_table();
    const auto pcre = PcreRegex::Compile(pattern);
    ASSERT_TRUE(pcre.ok()) << pattern;
    for (int i = 0; i < 5; ++i) {
      std::string text;
      for (size_t c = random() % 20; c > 0; --c) {
        static constexpr const char* kLetters[] = {"a", "b", "c", " ", "\n", "é"};
        text += kLetters[random() % std::size(kLetters)];
      }
      Regex::Search search(*regex, text);
      PcreSearch reference(**pcre, text);
      ASSERT_EQ(All(search), All(reference)) << pattern << " on '" << text << "'";
    }
  }
  EXPECT_GT(tables, 1400);
}

// TOK-07: scans in vain are remembered, so that none of these is quadratic.
TEST(Regex, IsLinearWhereABacktrackerIsQuadratic) {
  struct Case {
    const char* pattern;
    std::string text;
  };
  const size_t n = 1 << 20;
  const Case cases[] = {{R"(\s+$)", std::string(n, ' ') + "x"},
                        {R"(a+b|a)", std::string(n, 'a')},
                        {R"((?:ab)+c|a|b)",
                         [] {
                           std::string text;
                           while (text.size() < n) text += "ab";
                           return text;
                         }()},
                        {R"(\s*[\r\n]+|\s{16}(?!\S)|\s)", std::string(n, ' ') + "x"},
                        {R"((?:a|aa|aaa)*b)", std::string(n, 'a')}};
  for (const Case& c : cases) {
    ASSERT_TRUE(IsTable(c.pattern));
    const double begin = CpuSeconds();
    Find(c.pattern, c.text);
    EXPECT_LT(CpuSeconds() - begin, 2.0 * kSlowdown) << c.pattern;
  }
}

// Catastrophic for a backtracker: PCRE2 gives up within its limit, and the rest has no match.
TEST(Regex, BoundsTheFallback) {
  const auto regex = Regex::Compile(R"((?<!x)(?:a+)+(?=bcd)$)");
  ASSERT_TRUE(regex.ok());
  ASSERT_FALSE(regex->is_table());
  const std::string text(5000, 'a');
  Regex::Search search(*regex, text);
  const double begin = CpuSeconds();
  EXPECT_EQ(search.Next(), std::nullopt);
  EXPECT_LT(CpuSeconds() - begin, 10.0 * kSlowdown);
}

}  // namespace
}  // namespace polysil

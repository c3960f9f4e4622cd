#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/cpu_time.h"

namespace polysil {
namespace {

using Pieces = std::vector<std::string>;

// What each push and the flush emit.
Pieces Emitted(StopMatcher matcher, const Pieces& pieces) {
  Pieces out;
  for (const std::string& piece : pieces) out.push_back(matcher.Push(piece));
  out.push_back(matcher.Flush());
  return out;
}

TEST(StopMatcher, WithoutStopsHoldsNothing) {
  EXPECT_EQ(Emitted(StopMatcher({}, false), {"a", "bc"}), (Pieces{"a", "bc", ""}));
}

// STP-01
TEST(StopMatcher, NothingOfASplitStopLeaks) {
  EXPECT_EQ(Emitted(StopMatcher({"DEFGHIJ"}, false), {"DEF", "G", "HI", "J", "K"}),
            (Pieces{"", "", "", "", "", ""}));
}

// STP-02
TEST(StopMatcher, ReleasesAFalseAlarmAtOnce) {
  EXPECT_EQ(Emitted(StopMatcher({"own fox"}, false), {"The quick brown", " fox"}),
            (Pieces{"The quick br", "", ""}));
  EXPECT_EQ(Emitted(StopMatcher({"own fox"}, false), {"The quick brown", " f", "ix"}),
            (Pieces{"The quick br", "", "own fix", ""}));
}

// STP-03
TEST(StopMatcher, FlushesTheTailAtTheEnd) {
  EXPECT_EQ(Emitted(StopMatcher({"assistant"}, false), {"ple", "as"}), (Pieces{"ple", "", "as"}));
}

// STP-04
TEST(StopMatcher, HoldsOnlyWhatCanBecomeAStop) {
  StopMatcher matcher({std::string(500, 'Z')}, false);
  EXPECT_EQ(matcher.Push("text"), "text");
  EXPECT_EQ(matcher.Push("ZZZ"), "");
  EXPECT_EQ(matcher.held_bytes(), 3u);
  EXPECT_EQ(matcher.Push("y"), "ZZZy");
  EXPECT_EQ(matcher.held_bytes(), 0u);
}

// STP-05
TEST(StopMatcher, CutsInsideAPiece) {
  EXPECT_EQ(Emitted(StopMatcher({".."}, false), {"..."}), (Pieces{"", ""}));
  EXPECT_EQ(Emitted(StopMatcher({"stop"}, false), {"stop!"}), (Pieces{"", ""}));
  EXPECT_EQ(Emitted(StopMatcher({"."}, false), {" a.b"}), (Pieces{" a", ""}));
}

// STP-06: no normalisation.
TEST(StopMatcher, ComparesBytes) {
  EXPECT_EQ(Emitted(StopMatcher({"é"}, false), {"caf", "é!"}), (Pieces{"caf", "", ""}));
  EXPECT_EQ(Emitted(StopMatcher({"e\u0301"}, false), {"caf\u00E9"}), (Pieces{"caf\u00E9", ""}));
  EXPECT_EQ(Emitted(StopMatcher({"é"}, false), {"è"}), (Pieces{"è", ""}));
}

TEST(StopMatcher, TheEarliestEndWinsThenTheLongest) {
  StopMatcher matcher({"d", "bcd", "abcde"}, false);
  EXPECT_EQ(matcher.Push("xabcde"), "xa");
  ASSERT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.matched_stop(), "bcd");
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, CanIncludeTheStop) {
  EXPECT_EQ(Emitted(StopMatcher({"\n\n"}, true), {"a\n", "\nb"}), (Pieces{"a", "\n\n", ""}));
}

struct Model {
  std::string text;
  bool matched = false;
};

// The definition, by trying every end and every stop.
Model Definition(const Pieces& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

size_t LongestTailThatIsAPrefix(const Pieces& stops, std::string_view text) {
  for (size_t bytes = text.size(); bytes > 0; --bytes) {
    for (const std::string& stop : stops) {
      if (stop.size() > bytes &&
          std::string_view(stop).starts_with(text.substr(text.size() - bytes)))
        return bytes;
    }
  }
  return 0;
}

TEST(StopMatcher, EqualsItsDefinitionOnRandomTexts) {
  std::mt19937 random(1);
  const auto letters = [&random](size_t count) {
    std::string text(count, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    Pieces stops(1 + random() % 4);
    for (std::string& stop : stops) stop = letters(1 + random() % 6);
    StopMatcher matcher(stops, false);
    std::string text;
    std::string out;
    for (int i = 0; i < 8; ++i) {
      const std::string piece = letters(random() % 4);
      text += piece;
      out += matcher.Push(piece);
      const Model model = Definition(stops, text);
      ASSERT_EQ(matcher.matched(), model.matched);
      const size_t held = model.matched ? 0 : LongestTailThatIsAPrefix(stops, text);
      ASSERT_EQ(matcher.held_bytes(), held) << text;
      ASSERT_EQ(out, model.text.substr(0, model.text.size() - held)) << text;
    }
  }
}

// Sixteen long stops that nearly match everywhere: a matcher that compares each of them anew at
// each byte would need 16 * 10,000 steps per byte.
TEST(StopMatcher, IsLinearWithManyLongStops) {
  Pieces stops;
  for (int i = 0; i < 16; ++i) {
    stops.push_back(std::string(10000, 'a') + static_cast<char>('b' + i));
  }
  StopMatcher matcher(stops, false);
  const double begin = CpuSeconds();
  const std::string piece(1000, 'a');
  size_t out = 0;
  for (int i = 0; i < 2000; ++i) out += matcher.Push(piece).size();
  EXPECT_EQ(out + matcher.held_bytes(), 2000000u);
  EXPECT_EQ(matcher.held_bytes(), 10000u);
  EXPECT_LT(CpuSeconds() - begin, 1.0 * kSlowdown);
}

}  // namespace
}  // namespace polysil

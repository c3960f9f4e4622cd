#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/golden_files.h"
#include "text/utf8.h"

namespace polysil {
namespace {

std::string FromBase64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = (bits << 6) | static_cast<uint32_t>(kDigits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>((bits >> count) & 0xFF));
  }
  return bytes;
}

// One piece per id and one for the flush.
std::vector<std::string> Stream(std::span<const TokenId> ids, bool skip_control) {
  Detokenizer detokenizer(SmolLm2(), skip_control, false);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(detokenizer.Push(id));
  pieces.push_back(detokenizer.Flush());
  return pieces;
}

std::string Join(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

std::vector<TokenId> ByteIds(std::string_view bytes) {
  static const std::vector<TokenId> of_byte = [] {
    std::vector<TokenId> ids(256, -1);
    for (TokenId id = 0; id < SmolLm2()->vocab_size(); ++id) {
      const std::string_view token = SmolLm2()->TokenBytes(id);
      if (token.size() == 1) ids[static_cast<uint8_t>(token[0])] = id;
    }
    return ids;
  }();
  std::vector<TokenId> ids;
  for (const char c : bytes) ids.push_back(of_byte[static_cast<uint8_t>(c)]);
  return ids;
}

using Pieces = std::vector<std::string>;

TEST(Detokenizer, EqualsTheReferenceOnEveryLine) {
  const auto lines = ReadJsonLines(TestData("smollm2/detok.jsonl"));
  EXPECT_EQ(lines.size(), 684u);
  for (const auto& line : lines) {
    const std::vector<TokenId> ids = AsIds(line.at("ids"));
    const bool skip = line.at("skip_special").as_bool();
    EXPECT_EQ(SmolLm2()->Decode(ids, skip), FromBase64(AsString(line.at("bytes"))));
    Pieces expected;
    for (const auto& piece : line.at("stream").as_array()) expected.push_back(AsString(piece));
    const Pieces pieces = Stream(ids, skip);
    EXPECT_EQ(pieces, expected) << line.at("ids");
    EXPECT_EQ(Join(pieces), AsString(line.at("text")));
  }
}

// UTF-01, UTF-02, UTF-07: a character leaves with its last byte, never before, never later.
TEST(Detokenizer, EmitsACharacterWithItsLastByte) {
  EXPECT_EQ(Stream(ByteIds("\xC4\x8F"), false), (Pieces{"", "ď", ""}));
  EXPECT_EQ(Stream(ByteIds("\xF0\x9F\x98\x80\xF0\x9F\x98\x80"), false),
            (Pieces{"", "", "", "😀", "", "", "", "😀", ""}));
  EXPECT_EQ(Stream(ByteIds("\xE9\xBE\x9C"), false), (Pieces{"", "", "龜", ""}));
}

// UTF-03, UTF-09: what is incomplete at the end, or cut off by another character, is U+FFFD.
TEST(Detokenizer, ReplacesAnIncompleteCharacter) {
  EXPECT_EQ(Stream(ByteIds("\xE6"), false), (Pieces{"", "\uFFFD"}));
  EXPECT_EQ(Stream(ByteIds("\xE6 word"), false), (Pieces{"", "\uFFFD ", "w", "o", "r", "d", ""}));
}

// UTF-04: a byte that can never be part of a character is replaced at once.
TEST(Detokenizer, ReplacesAStrayByteAndKeepsWhatFollows) {
  EXPECT_EQ(Stream(ByteIds("\x80'"), false), (Pieces{"\uFFFD", "'", ""}));
  EXPECT_EQ(Stream(ByteIds("\x80\\"), false), (Pieces{"\uFFFD", "\\", ""}));
}

// UTF-06: random ids, mostly bytes of broken characters.
TEST(Detokenizer, StreamJoinsToTheOneShotDecoding) {
  std::mt19937 random(6);
  std::vector<TokenId> bytes = ByteIds("\xEF\xBF\xBD\xF0\x9F\xE2\x82\xAC\x80\xC3\xED\xA0");
  for (int round = 0; round < 20000; ++round) {
    std::vector<TokenId> ids(random() % 50);
    for (TokenId& id : ids) {
      id = random() % 4 == 0 ? static_cast<TokenId>(random() % 49152)
                             : bytes[random() % bytes.size()];
    }
    std::string once;
    AppendWellFormed(SmolLm2()->Decode(ids, false), once);
    Pieces pieces = Stream(ids, false);
    ASSERT_EQ(Join(pieces), once);
    for (const std::string& piece : pieces) {
      std::string checked;
      AppendWellFormed(piece, checked);
      ASSERT_EQ(checked, piece);
    }
  }
}

// UTF-10: states of two sequences share nothing.
TEST(Detokenizer, SequencesAreIndependent) {
  Detokenizer a(SmolLm2(), true, false);
  Detokenizer b(SmolLm2(), true, false);
  const auto ids_a = ByteIds("\xF0\x9F\x98\x80");
  const auto ids_b = ByteIds("\xE6\x97\xA5");
  std::string text_a;
  std::string text_b;
  for (size_t i = 0; i < ids_a.size(); ++i) {
    text_a += a.Push(ids_a[i]);
    if (i < ids_b.size()) text_b += b.Push(ids_b[i]);
  }
  EXPECT_EQ(text_a, "😀");
  EXPECT_EQ(text_b, "日");
}

TEST(Detokenizer, IgnoresIdsOutsideTheVocabulary) {
  EXPECT_EQ(Stream(std::vector<TokenId>{-1, 49152, 2147483647}, false), (Pieces{"", "", "", ""}));
}

}  // namespace
}  // namespace polysil

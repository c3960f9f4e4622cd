#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "text/golden_files.h"

namespace polysil {
namespace {

class Collector final : public PieceSink {
 public:
  void Piece(std::string_view piece, bool at_start) override {
    pieces.emplace_back(piece);
    starts.push_back(at_start);
  }
  std::vector<std::string> pieces;
  std::vector<bool> starts;
};

std::vector<std::string> Split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Collector collector;
  pre_tokenizer.Split(text, true, collector);
  return collector.pieces;
}

std::vector<std::string> SplitNamed(std::string_view name, std::string_view text) {
  const auto named = MakeNamedPreTokenizer(name);
  CHECK(named.ok(), "{}", Message(named.status()));
  return Split(named->pre_tokenizer, text);
}

using Pieces = std::vector<std::string>;

// Every name of the table against another regular-expression engine (make_pre_tokenizers.py).
TEST(PreTokenizer, EveryNameSplitsAsItsExpressionsSay) {
  int names = 0;
  for (const auto& line : ReadJsonLines(TestData("pre_tokenizers.jsonl"))) {
    for (const auto& value : line.at("names").as_array()) {
      const std::string name = AsString(value);
      const auto named = MakeNamedPreTokenizer(name);
      ASSERT_TRUE(named.ok()) << Message(named.status());
      EXPECT_EQ(named->add_bos, line.at("add_bos").as_bool()) << name;
      EXPECT_EQ(named->ignore_merges, line.at("ignore_merges").as_bool()) << name;
      EXPECT_EQ(named->byte_level, name != "gemma4");
      ++names;
    }
    const std::string name = AsString(line.at("names").at(0));
    const auto named = MakeNamedPreTokenizer(name);
    for (const auto& row : line.at("cases").as_array()) {
      Pieces expected;
      for (const auto& piece : row.at("pieces").as_array()) expected.push_back(AsString(piece));
      EXPECT_EQ(Split(named->pre_tokenizer, AsString(row.at("text"))), expected)
          << name << row.at("text");
    }
  }
  EXPECT_EQ(names, 82);
}

// TOK-15
TEST(PreTokenizer, RefusesAnUnknownOrMissingName) {
  const auto unknown = MakeNamedPreTokenizer("xyz");
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(unknown.status()),
            "tokenizer.ggml.pre is 'xyz', which is not a known pre-tokenizer");
  EXPECT_EQ(MakeNamedPreTokenizer("").status().code(), StatusCode::kInvalidArgument);
}

// TOK-06
TEST(PreTokenizer, GroupsDigitsAsTheFamilyDoes) {
  EXPECT_EQ(SplitNamed("llama-bpe", "12345678"), (Pieces{"123", "456", "78"}));
  EXPECT_EQ(SplitNamed("qwen2", "12345678"), (Pieces{"1", "2", "3", "4", "5", "6", "7", "8"}));
  EXPECT_EQ(SplitNamed("llama-bpe", "1234567 89"), (Pieces{"123", "456", "7", " ", "89"}));
  EXPECT_EQ(SplitNamed("llama-bpe", "٣٤٥"), (Pieces{"٣٤٥"}));
  EXPECT_EQ(SplitNamed("qwen2", "٣٤٥"), (Pieces{"٣", "٤", "٥"}));
  EXPECT_EQ(SplitNamed("superbpe", "1234567"), (Pieces{"1", "234", "567"}));
  EXPECT_EQ(SplitNamed("tiny_aya", "1234567"), (Pieces{"1", "234", "567"}));
  EXPECT_EQ(SplitNamed("tiny_aya", "1234567x"), (Pieces{"123", "456", "7", "x"}));
  EXPECT_EQ(SplitNamed("afmoe", "1234567"), (Pieces{"1", "234", "567"}));
}

// TOK-12
TEST(PreTokenizer, CombiningMarksFollowTheExpression) {
  EXPECT_EQ(SplitNamed("qwen35", "ที่"), (Pieces{"ที่"}));
  EXPECT_NE(SplitNamed("qwen2", "ที่"), (Pieces{"ที่"}));
  EXPECT_EQ(SplitNamed("qwen35", "हिन्दी"), (Pieces{"हिन्दी"}));
  EXPECT_GT(SplitNamed("qwen2", "हिन्दी").size(), 1u);
}

TEST(PreTokenizer, OnlyTheFirstPieceIsAtTheStart) {
  const auto named = MakeNamedPreTokenizer("qwen2");
  ASSERT_TRUE(named.ok());
  Collector at_start;
  named->pre_tokenizer.Split("a b c", true, at_start);
  EXPECT_EQ(at_start.starts, (std::vector<bool>{true, false, false}));
  Collector later;
  named->pre_tokenizer.Split("a b c", false, later);
  EXPECT_EQ(later.starts, (std::vector<bool>{false, false, false}));
}

TEST(PreTokenizer, PiecesJoinToTheTextEvenWhereItIsNotUtf8) {
  const std::string text = "ab\xFF\xFE c\xE2\x82 \xF0\x9F\x98 12\xC3";
  for (const auto& line : ReadJsonLines(TestData("pre_tokenizers.jsonl"))) {
    const std::string name = AsString(line.at("names").at(0));
    std::string joined;
    for (const std::string& piece : SplitNamed(name, text)) joined += piece;
    EXPECT_EQ(joined, text) << name;
  }
}

}  // namespace
}  // namespace polysil

// The tokenizer of SmolLM2 against the reference library, line by line.
#include <gtest/gtest.h>

#include "text/golden_files.h"

namespace polysil {
namespace {

TEST(TokenizerSmolLm2, EqualsTheReferenceOnEveryLine) {
  const auto lines = ReadJsonLines(TestData("smollm2/tokenizer.jsonl"));
  EXPECT_EQ(lines.size(), 2353u);
  size_t exact = 0;
  for (const auto& line : lines) {
    const std::string text = AsString(line.at("text"));
    const auto ids = SmolLm2()->Encode(
        text, {.parse_control_tokens = line.at("special").as_bool(), .add_bos = true});
    exact += ids == AsIds(line.at("ids"));
    EXPECT_EQ(ids, AsIds(line.at("ids"))) << line.at("category") << ": " << text.substr(0, 200);
  }
  RecordProperty("exact_lines", static_cast<int>(exact));
}

// The file has no token for eight bytes. They vanish before anything merges, as in the reference
// library that the model was trained with.
TEST(TokenizerSmolLm2, BytesWithoutATokenVanishAndTheirNeighboursCloseUp) {
  const auto lines = ReadJsonLines(TestData("smollm2/tokenizer_missing_bytes.jsonl"));
  EXPECT_EQ(lines.size(), 17u);
  for (const auto& line : lines) {
    const std::string text = AsString(line.at("text"));
    EXPECT_EQ(SmolLm2()->Encode(text, {}), AsIds(line.at("ids_closed_up"))) << line.at("text");
  }
}

TEST(TokenizerSmolLm2, RenderedChatsTakeControlTokensFromTheTemplateOnly) {
  const auto lines = ReadJsonLines(TestData("smollm2/rendered_chats.jsonl"));
  EXPECT_GT(lines.size(), 100u);
  for (const auto& line : lines) {
    std::vector<ByteSpan> spans;
    for (const auto& span : line.at("outside_spans").as_array()) {
      spans.push_back({.begin = static_cast<size_t>(span.at(0).as_int64()),
                       .end = static_cast<size_t>(span.at(1).as_int64())});
    }
    const std::string text = AsString(line.at("text"));
    EXPECT_EQ(SmolLm2()->EncodeRendered(text, spans, true), AsIds(line.at("ids_safe")))
        << line.at("id");
    EXPECT_EQ(SmolLm2()->Encode(text, {.parse_control_tokens = true}), AsIds(line.at("ids_hf")))
        << line.at("id");
  }
}

TEST(TokenizerSmolLm2, KnowsItsEndTokens) {
  EXPECT_EQ(SmolLm2()->eos_id(), 2);
  EXPECT_EQ(SmolLm2()->Find("<|im_end|>"), 2);
  EXPECT_EQ(SmolLm2()->Find("<|im_middle|>"), std::nullopt);
  const std::vector<TokenId> end_ids(SmolLm2()->end_ids().begin(), SmolLm2()->end_ids().end());
  EXPECT_EQ(end_ids, (std::vector<TokenId>{0, 2}));
  EXPECT_FALSE(SmolLm2()->adds_bos());
  EXPECT_EQ(SmolLm2()->vocab_size(), 49152);
}

}  // namespace
}  // namespace polysil

// Failures that other engines had with tokenizers, by the names of the project's list (TOK-..,
// UTF-..).
#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/golden_files.h"

namespace polysil {
namespace {

using Ids = std::vector<TokenId>;

std::shared_ptr<const Tokenizer> Tiny(const std::string& name) {
  auto tokenizer =
      Tokenizer::FromJson(ReadFile(TestData("tiny/" + name + "/tokenizer.json")),
                          ReadFile(TestData("tiny/" + name + "/tokenizer_config.json")));
  CHECK(tokenizer.ok(), "{}", Message(tokenizer.status()));
  return *std::move(tokenizer);
}

std::shared_ptr<const Tokenizer> MustCreate(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  CHECK(tokenizer.ok(), "{}", Message(tokenizer.status()));
  return *std::move(tokenizer);
}

std::string Stream(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids,
                   bool after_text = false) {
  Detokenizer detokenizer(tokenizer, false, after_text);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Flush();
}

// A SentencePiece vocabulary: control, 256 byte tokens from 3, then pieces.
TokenizerSpec SentencePieceSpec() {
  TokenizerSpec spec{.model = "llama", .bos_id = 1, .eos_id = 2, .unknown_id = 0};
  const auto add = [&spec](std::string text, TokenType type) {
    spec.scores.push_back(-static_cast<float>(spec.tokens.size()));
    spec.tokens.push_back(std::move(text));
    spec.types.push_back(type);
  };
  add("<unk>", TokenType::kUnknown);
  add("<s>", TokenType::kControl);
  add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
  for (const char* piece : {"▁", "h", "e", "l", "o", "u", "s", "r", "▁h", "el", "lo", "▁hel",
                            "▁hello", "us", "er", "user", "▁u", "▁us", "▁user"}) {
    add(piece, TokenType::kNormal);
  }
  add("<|im_start|>", TokenType::kControl);
  return spec;
}

// TOK-01
TEST(TokenizerFieldCases, ALeadingSpaceIsKeptApartFromTheOneInFront) {
  const auto tokenizer = MustCreate(SentencePieceSpec());
  const TokenId mark = *tokenizer->Find("▁");
  const TokenId hello = *tokenizer->Find("▁hello");
  EXPECT_EQ(tokenizer->Encode("hello", {}), (Ids{1, hello}));
  EXPECT_EQ(tokenizer->Encode(" hello", {}), (Ids{1, mark, hello}));
  EXPECT_EQ(tokenizer->Decode(Ids{hello}, true), "hello");
  EXPECT_EQ(tokenizer->Decode(Ids{mark, hello}, true), " hello");
  // In the middle of a text the token keeps its space.
  EXPECT_EQ(tokenizer->TokenBytes(hello), " hello");
  EXPECT_EQ(Stream(tokenizer, {hello, hello}), "hello hello");
  EXPECT_EQ(Stream(tokenizer, {hello}, true), " hello");
  EXPECT_EQ(tokenizer->Encode("", {}), (Ids{1}));
}

// TOK-02, UTF-08
TEST(TokenizerFieldCases, BytesStandForCharactersWithoutAToken) {
  const auto tokenizer = MustCreate(SentencePieceSpec());
  const Ids ids = tokenizer->Encode("hello깰", {.add_bos = false});
  EXPECT_EQ(ids, (Ids{*tokenizer->Find("▁hello"), 3 + 0xEA, 3 + 0xB9, 3 + 0xB0}));
  EXPECT_EQ(tokenizer->Decode(ids, false), "hello깰");
  EXPECT_EQ(Stream(tokenizer, ids), "hello깰");
  EXPECT_EQ(tokenizer->TokenBytes(3 + 0xEA), "\xEA");
}

// TOK-03: a GGUF file asks for the space after every control token, a tokenizer.json says itself.
TEST(TokenizerFieldCases, TheWordAfterAControlTokenFollowsTheFile) {
  const auto gguf = MustCreate(SentencePieceSpec());
  const EncodeOptions parse{.parse_control_tokens = true, .add_bos = false};
  const TokenId im_start = *gguf->Find("<|im_start|>");
  EXPECT_EQ(gguf->Encode("<|im_start|>user", parse), (Ids{im_start, *gguf->Find("▁user")}));
  TokenizerSpec without = SentencePieceSpec();
  without.add_space_prefix = false;
  EXPECT_EQ(MustCreate(without)->Encode("<|im_start|>user", parse),
            (Ids{im_start, *gguf->Find("user")}));
  int lines = 0;
  for (const auto& line : ReadJsonLines(TestData("features.jsonl"))) {
    const bool legacy = line.at("name") == "llama2-legacy";
    if (!legacy && line.at("name") != "llama2-first") continue;
    for (const auto& row : line.at("cases").as_array()) {
      if (row.at("text") != "<s>the<s>") continue;
      // "▁the", or "t" and "he": that the ids are met is tested with the other features.
      EXPECT_EQ(AsIds(row.at("ids")).size(), legacy ? 3u : 4u);
      ++lines;
    }
  }
  EXPECT_EQ(lines, 2);
}

// TOK-04
TEST(TokenizerFieldCases, NoSpaceIsGluedOnWhereTheFileWantsNone) {
  const auto gemma = Tiny("gemma3");
  const std::string text = "<pad>text<eos>";
  const Ids ids = gemma->Encode(text, {.parse_control_tokens = true, .add_bos = false});
  EXPECT_EQ(ids.front(), *gemma->Find("<pad>"));
  EXPECT_EQ(ids.back(), *gemma->Find("<eos>"));
  EXPECT_EQ(gemma->Decode(ids, false), text);
}

// TOK-09
TEST(TokenizerFieldCases, ATextThatSpellsAByteTokenStaysText) {
  for (const auto& tokenizer :
       {MustCreate(SentencePieceSpec()), Tiny("mistral"), Tiny("gemma3"), SmolLm2()}) {
    const Ids ids = tokenizer->Encode("<0x40>", {.add_bos = false});
    EXPECT_GT(ids.size(), 1u);
    EXPECT_EQ(tokenizer->Decode(ids, false), "<0x40>");
  }
}

// TOK-10, TOK-13: lossless where the family is.
TEST(TokenizerFieldCases, TextsComeBackAsTheyWere) {
  const std::string texts[] = {"\nfoo 🤗 bar   ",
                               " ",
                               "  ",
                               "\t\n",
                               "\n\n\n",
                               "a\r\nb",
                               "\u00A0",
                               "\u3000",
                               "\u200B",
                               "\uFEFFx",
                               "👨‍👩‍👧‍👦",
                               "I'M don'T we'LL",
                               " 3.14 ",
                               "\uFFFD\uFFFD",
                               std::string("\0x", 2)};
  for (const auto& tokenizer : {SmolLm2(), Tiny("llama"), Tiny("gpt_oss"), Tiny("deepseek_v3"),
                                Tiny("gemma3"), Tiny("mistral")}) {
    for (const std::string& text : texts) {
      const Ids ids = tokenizer->Encode(text, {.add_bos = false});
      EXPECT_EQ(tokenizer->Decode(ids, false), text);
      EXPECT_EQ(Stream(tokenizer, ids), text);
    }
  }
}

// TOK-11: a file without a normalizer changes nothing, one with NFC composes.
TEST(TokenizerFieldCases, NormalizesAsTheFileSaysAndNotElse) {
  EXPECT_NE(SmolLm2()->Encode("e\u0301", {}), SmolLm2()->Encode("\u00E9", {}));
  const auto qwen = Tiny("qwen2");
  EXPECT_EQ(qwen->Encode("e\u0301", {}), qwen->Encode("\u00E9", {}));
  EXPECT_EQ(qwen->Encode("（", {}), qwen->Encode("\uFF08", {}));
  EXPECT_NE(qwen->Encode("（", {}), qwen->Encode("(", {}));  // that would be NFKC
}

// TOK-15
TEST(TokenizerFieldCases, RefusesAFileWithoutAKnownPreTokenizer) {
  TokenizerSpec spec = SmolLm2Spec();
  for (const char* pre : {"", "xyz", "Smollm"}) {
    spec.pre = pre;
    const auto tokenizer = Tokenizer::Create(spec);
    ASSERT_EQ(tokenizer.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(tokenizer.status()).find("tokenizer.ggml.pre"), std::string::npos);
  }
}

TEST(TokenizerFieldCases, BosIsAddedWhereTheFileOrTheFamilyWantsIt) {
  TokenizerSpec spec = SentencePieceSpec();
  EXPECT_TRUE(MustCreate(spec)->adds_bos());
  spec.add_bos = false;
  EXPECT_FALSE(MustCreate(spec)->adds_bos());
  EXPECT_EQ(MustCreate(spec)->Encode("", {}), Ids{});
  spec.add_eos = true;
  EXPECT_EQ(MustCreate(spec)->Encode("hello", {}).back(), 2);
  EXPECT_EQ(MustCreate(spec)->Encode("hello", {.add_bos = false}).size(), 1u);
  spec.add_bos = true;
  spec.bos_id.reset();
  EXPECT_FALSE(Tokenizer::Create(spec).ok());
  // A template that writes BOS itself does not get a second one.
  const auto tokenizer = MustCreate(SentencePieceSpec());
  EXPECT_EQ(tokenizer->EncodeRendered("<s>hello", {}, true), tokenizer->Encode("hello", {}));
  EXPECT_EQ(tokenizer->EncodeRendered("hello", {}, true), tokenizer->Encode("hello", {}));
  const ByteSpan user[] = {{0, 8}};
  EXPECT_EQ(tokenizer->EncodeRendered("<s>hello", user, true).front(), 1);
  EXPECT_GT(tokenizer->EncodeRendered("<s>hello", user, true).size(), 3u);
}

TEST(TokenizerFieldCases, GemmaFourMergesOverMarkedSpacesAndFallsBackToBytes) {
  TokenizerSpec spec{.model = "gemma4", .bos_id = 0};
  spec.tokens = {"<bos>", "▁", "a", "b", "▁a", "▁ab", "ab", "\n", "<0xC3>", "<0xA9>"};
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.types[0] = TokenType::kControl;
  spec.types[8] = spec.types[9] = TokenType::kByte;
  spec.merges = {"▁ a", "a b", "▁a b"};
  const auto tokenizer = MustCreate(spec);
  EXPECT_EQ(tokenizer->Encode("a b\n abé", {}), (Ids{0, 2, 1, 3, 7, 5, 8, 9}));
  EXPECT_EQ(tokenizer->Decode(Ids{2, 1, 3, 7, 5, 8, 9}, false), "a b\n abé");
}

}  // namespace
}  // namespace polysil

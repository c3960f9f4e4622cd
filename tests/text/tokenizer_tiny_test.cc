// Tokenizers from tokenizer.json, in the shapes of published families, against the reference
// library.
#include <gtest/gtest.h>

#include <filesystem>

#include "text/detokenizer.h"
#include "text/golden_files.h"

namespace polysil {
namespace {

std::shared_ptr<const Tokenizer> Load(const std::string& folder) {
  auto tokenizer = Tokenizer::FromJson(ReadFile(folder + "/tokenizer.json"),
                                       ReadFile(folder + "/tokenizer_config.json"));
  CHECK(tokenizer.ok(), "{}: {}", folder, Message(tokenizer.status()));
  return *std::move(tokenizer);
}

std::string Stream(std::shared_ptr<const Tokenizer> tokenizer, std::span<const TokenId> ids) {
  Detokenizer detokenizer(std::move(tokenizer), false, false);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Flush();
}

void ExpectEqualsReference(const std::string& folder) {
  const auto tokenizer = Load(folder);
  const auto lines = ReadJsonLines(folder + "/tokenizer_golden.jsonl");
  EXPECT_EQ(lines.size(), 54u);
  for (const auto& line : lines) {
    const std::string text = AsString(line.at("text"));
    const std::vector<TokenId> ids = AsIds(line.at("ids"));
    EXPECT_EQ(tokenizer->Encode(text, {.parse_control_tokens = true, .add_bos = false}), ids)
        << folder << ": " << text;
    EXPECT_EQ(tokenizer->Encode(text, {.parse_control_tokens = true}),
              AsIds(line.at("ids_with_bos")))
        << folder << ": " << text;
    EXPECT_EQ(tokenizer->Decode(ids, false), AsString(line.at("decoded"))) << folder;
    EXPECT_EQ(Stream(tokenizer, ids), AsString(line.at("decoded"))) << folder;
  }
}

TEST(TokenizerTiny, EqualsTheReferenceForEveryFamily) {
  for (const char* family : {"llama", "qwen2", "mistral", "gemma3", "gpt_oss", "deepseek_v3"}) {
    ExpectEqualsReference(TestData(std::string("tiny/") + family));
  }
}

TEST(TokenizerTiny, EqualsTheReferenceForEveryTinyModel) {
  const std::string root = SharedGolden("tiny");
  if (!std::filesystem::exists(root)) GTEST_SKIP() << root << " is not here";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!std::filesystem::exists(entry.path() / "tokenizer_golden.jsonl")) continue;
    ExpectEqualsReference(entry.path().string());
    ++models;
  }
  EXPECT_EQ(models, 24);
}

TEST(TokenizerTiny, KnowsBosAndEndTokens) {
  const auto llama = Load(TestData("tiny/llama"));
  EXPECT_TRUE(llama->adds_bos());
  EXPECT_EQ(llama->bos_id(), 512);
  EXPECT_EQ(llama->eos_id(), 516);
  // <|end_of_text|> and <|eot_id|>.
  EXPECT_EQ(std::vector<TokenId>(llama->end_ids().begin(), llama->end_ids().end()),
            (std::vector<TokenId>{513, 516}));
  const auto qwen = Load(TestData("tiny/qwen2"));
  EXPECT_FALSE(qwen->adds_bos());
  EXPECT_EQ(qwen->bos_id(), std::nullopt);
  // <|end|> closes a message, not the answer, where there is <|return|>.
  const auto gpt_oss = Load(TestData("tiny/gpt_oss"));
  EXPECT_EQ(std::vector<TokenId>(gpt_oss->end_ids().begin(), gpt_oss->end_ids().end()),
            (std::vector<TokenId>{*gpt_oss->Find("<|endoftext|>"), *gpt_oss->Find("<|return|>")}));
}

}  // namespace
}  // namespace polysil

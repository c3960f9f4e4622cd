// Real vocabularies of several families against reference libraries, 500 texts each.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <unordered_map>

#include "text/byte_alphabet.h"
#include "text/golden_files.h"
#include "text/utf8.h"

namespace polysil {
namespace {

std::string Spell(std::string_view bytes) {
  std::string spelling;
  for (const char c : bytes) AppendUtf8(CharacterOfByte(static_cast<uint8_t>(c)), spelling);
  return spelling;
}

// A vocabulary by rank as merges: each way to cut a token in two tokens, in the order of the ranks.
void AddMergesOfRanks(const std::vector<std::string>& bytes, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < bytes.size(); ++i) ids.emplace(bytes[i], i);
  for (const std::string& token : bytes) {
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const std::string_view left = std::string_view(token).substr(0, cut);
      const std::string_view right = std::string_view(token).substr(cut);
      if (ids.contains(left) && ids.contains(right)) {
        spec.merges.push_back(Spell(left) + " " + Spell(right));
      }
    }
  }
}

class TokenizerFamilies : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(SharedGolden("templates"))) {
      GTEST_SKIP() << SharedGolden("templates") << " is not here";
    }
  }

  // ids of the golden file are `id_offset` above those of the vocabulary.
  static void ExpectEqualsReference(const TokenizerSpec& spec, const std::string& golden,
                                    TokenId id_offset = 0, bool parse = false) {
    const auto tokenizer = Tokenizer::Create(spec);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    const auto lines = ReadJsonLines(SharedGolden("templates/" + golden));
    EXPECT_EQ(lines.size(), 500u);
    size_t exact = 0;
    for (const auto& line : lines) {
      const std::string text = AsString(line.at("text"));
      auto ids = (*tokenizer)->Encode(text, {.parse_control_tokens = parse, .add_bos = false});
      const std::string decoded = (*tokenizer)->Decode(ids, false);
      for (TokenId& id : ids) id += id_offset;
      exact += ids == AsIds(line.at("ids"));
      EXPECT_EQ(ids, AsIds(line.at("ids"))) << golden << ": " << text;
      if (spec.model == "gpt2") {
        EXPECT_EQ(decoded, text) << golden;
      }
    }
    RecordProperty(golden, static_cast<int>(exact));
    std::cout << golden << ": " << exact << " of " << lines.size() << " lines exact\n";
    ExpectEqualsLlamaCpp(**tokenizer, golden, id_offset);
  }

  // 47 texts that llama.cpp's converter has tokenized with many vocabularies.
  static void ExpectEqualsLlamaCpp(const Tokenizer& tokenizer, const std::string& golden,
                                   TokenId id_offset) {
    static const std::map<std::string, std::vector<std::string>> kNames = {
        {"tok_gguf_gpt_2.jsonl", {"gpt-2"}},
        {"tok_qwen2.jsonl", {"qwen2", "deepseek-r1-qwen"}},
        {"tok_o200k.jsonl", {"gpt-4o"}},
        {"tok_tekken.jsonl", {"pixtral"}}};
    const auto names = kNames.find(golden);
    if (names == kNames.end()) return;
    size_t lines = 0;
    for (const auto& line : ReadJsonLines(SharedGolden("templates/tok_llamacpp_inp_out.jsonl"))) {
      const std::string name = AsString(line.at("vocab"));
      if (std::find(names->second.begin(), names->second.end(), name) == names->second.end()) {
        continue;
      }
      auto ids = tokenizer.Encode(AsString(line.at("text")), {.add_bos = false});
      for (TokenId& id : ids) id += id_offset;
      EXPECT_EQ(ids, AsIds(line.at("ids"))) << name << ": " << line.at("text");
      ++lines;
    }
    EXPECT_EQ(lines, 47 * names->second.size());
  }

  static TokenizerSpec ByRank(const std::string& file, std::string pre, size_t tokens_max) {
    std::vector<std::string> bytes = ReadTokenFile(SharedGolden("templates/" + file));
    bytes.resize(std::min(bytes.size(), tokens_max));
    TokenizerSpec spec{.model = "gpt2", .pre = std::move(pre), .add_bos = false};
    for (const std::string& token : bytes) spec.tokens.push_back(Spell(token));
    AddMergesOfRanks(bytes, spec);
    return spec;
  }

  // "id", "piece", score, type: a JSON array a line or fields with tabs.
  static TokenizerSpec SentencePiece(const std::string& file) {
    TokenizerSpec spec{.model = "llama", .unknown_id = 0, .add_bos = false};
    std::istringstream text(ReadFile(SharedGolden("templates/" + file)));
    for (std::string line; std::getline(text, line);) {
      const size_t first = line.find('\t');
      const size_t second = line.find('\t', first + 1);
      spec.tokens.push_back(AsString(boost::json::parse(line.substr(0, first))));
      spec.scores.push_back(std::stof(line.substr(first + 1, second - first - 1)));
      spec.types.push_back(static_cast<TokenType>(std::stoi(line.substr(second + 1))));
    }
    return spec;
  }
};

constexpr size_t kAll = size_t{1} << 30;

TEST_F(TokenizerFamilies, Cl100k) {
  ExpectEqualsReference(ByRank("vocab_cl100k.bin", "llama-bpe", kAll), "tok_cl100k.jsonl");
}
TEST_F(TokenizerFamilies, O200k) {
  ExpectEqualsReference(ByRank("vocab_o200k.bin", "gpt-4o", kAll), "tok_o200k.jsonl");
}
TEST_F(TokenizerFamilies, Qwen2) {
  ExpectEqualsReference(ByRank("vocab_qwen2.bin", "qwen2", kAll), "tok_qwen2.jsonl");
}
TEST_F(TokenizerFamilies, Tekken) {
  ExpectEqualsReference(ByRank("vocab_tekken.bin", "tekken", 130072), "tok_tekken.jsonl", 1000);
}

TEST_F(TokenizerFamilies, Gpt2) {
  std::vector<std::string> bytes = ReadTokenFile(SharedGolden("templates/vocab_gpt2.bin"));
  TokenizerSpec spec{.model = "gpt2", .pre = "gpt-2"};
  for (const std::string& token : bytes) spec.tokens.push_back(Spell(token));
  spec.types.assign(bytes.size(), TokenType::kNormal);
  spec.types.back() = TokenType::kControl;  // <|endoftext|>
  bytes.pop_back();
  AddMergesOfRanks(bytes, spec);
  ExpectEqualsReference(spec, "tok_gguf_gpt_2.jsonl");
}

TEST_F(TokenizerFamilies, DeepseekV3) {
  const auto bytes = ReadTokenFile(SharedGolden("templates/vocab_deepseek_v3.bin"));
  const auto meta = boost::json::parse(ReadFile(SharedGolden("templates/tok_meta.json")));
  TokenizerSpec spec{.model = "gpt2", .pre = "deepseek-v3", .add_bos = false};
  for (const std::string& token : bytes) spec.tokens.push_back(Spell(token));
  spec.types.assign(bytes.size(), TokenType::kNormal);
  for (const auto& added : meta.at("deepseek_v3").at("added_tokens").as_array()) {
    const auto id = static_cast<size_t>(added.at(0).as_int64());
    if (id >= spec.tokens.size()) {
      spec.tokens.resize(id + 1);
      spec.types.resize(id + 1, TokenType::kUnused);
    }
    spec.tokens[id] = AsString(added.at(1));
    spec.types[id] = TokenType::kUserDefined;
  }
  for (const auto& [left, right] :
       ReadMergeFile(SharedGolden("templates/merges_deepseek_v3.bin"))) {
    spec.merges.push_back(spec.tokens[static_cast<size_t>(left)] + " " +
                          spec.tokens[static_cast<size_t>(right)]);
  }
  ExpectEqualsReference(spec, "tok_deepseek_v3.jsonl", 0, true);
}

TEST_F(TokenizerFamilies, MistralV1) {
  ExpectEqualsReference(SentencePiece("vocab_mistral_v1.tsv"), "tok_mistral_v1.jsonl");
}
TEST_F(TokenizerFamilies, MistralV3) {
  ExpectEqualsReference(SentencePiece("vocab_mistral_v3.tsv"), "tok_mistral_v3.jsonl");
}

}  // namespace
}  // namespace polysil

// Vocabularies and tokenizer files from nobody's friend: a clear error or a tokenizer that works,
// never a crash.
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "text/detokenizer.h"
#include "text/golden_files.h"

namespace polysil {
namespace {

// Encodes, decodes and checks that every id is one of the vocabulary.
void Exercise(const std::shared_ptr<const Tokenizer>& tokenizer) {
  const std::string text = "<s> It's 1234 naïve <|eot_id|>  tests\n\xFF\xE2\x82 <0x41>\u2581";
  for (const bool parse : {false, true}) {
    const auto ids = tokenizer->Encode(text, {.parse_control_tokens = parse});
    Detokenizer detokenizer(tokenizer, parse, false);
    std::string streamed;
    for (const TokenId id : ids) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, tokenizer->vocab_size());
      streamed += detokenizer.Push(id);
    }
    streamed += detokenizer.Flush();
    tokenizer->Decode(ids, parse);
  }
  const ByteSpan spans[] = {{2, 9}};
  tokenizer->EncodeRendered(text, spans, true);
  for (const TokenId id : tokenizer->end_ids()) ASSERT_LT(id, tokenizer->vocab_size());
}

void TryFile(const std::string& json, const std::string& config, int& accepted) {
  const auto tokenizer = Tokenizer::FromJson(json, config);
  if (!tokenizer.ok()) {
    EXPECT_FALSE(Message(tokenizer.status()).empty());
    return;
  }
  ++accepted;
  Exercise(*tokenizer);
}

std::string TinyFile(const std::string& name) {
  return ReadFile(TestData("tiny/" + name + "/tokenizer.json"));
}

// Every place in a value, as pointers.
void Collect(boost::json::value& value, std::vector<boost::json::value*>& out) {
  out.push_back(&value);
  if (value.is_array()) {
    for (auto& item : value.get_array()) Collect(item, out);
  } else if (value.is_object()) {
    for (auto& field : value.get_object()) Collect(field.value(), out);
  }
}

boost::json::value Hostile(std::mt19937& random) {
  switch (random() % 16) {
    case 0:
      return nullptr;
    case 1:
      return true;
    case 2:
      return -1;
    case 3:
      return 0;
    case 4:
      return std::numeric_limits<int64_t>::max();
    case 5:
      return std::numeric_limits<int64_t>::min();
    case 6:
      return 4194303;
    case 7:
      return 1e308;
    case 8:
      return -0.5;
    case 9:
      return "";
    case 10:
      return "(?:a*)*b";
    case 11:
      return boost::json::string(2000, 'x');
    case 12:
      return boost::json::array();
    case 13:
      return boost::json::object();
    case 14:
      return boost::json::array{boost::json::array{"a", 1}, "b"};
    default:
      return "\u2581";
  }
}

// The first half of the places are rare ones: those outside of vocabulary and merges.
TEST(TokenizerHostile, SurvivesFieldsOfTheWrongKind) {
  std::mt19937 random(11);
  int accepted = 0;
  int tried = 0;
  for (const char* name : {"llama", "mistral", "gemma3", "deepseek_v3", "qwen2"}) {
    const boost::json::value original = boost::json::parse(TinyFile(name));
    for (int round = 0; round < 300; ++round) {
      boost::json::value file = original;
      std::vector<boost::json::value*> places;
      for (auto& field : file.as_object()) {
        if (field.key() != "model") Collect(field.value(), places);
      }
      for (auto& field : file.as_object().at("model").as_object()) {
        places.push_back(&field.value());
        if (round % 3 == 0) Collect(field.value(), places);
      }
      *places[random() % places.size()] = Hostile(random);
      TryFile(boost::json::serialize(file), "", accepted);
      ++tried;
    }
  }
  EXPECT_EQ(tried, 1500);
  EXPECT_GT(accepted, 50);
}

TEST(TokenizerHostile, SurvivesEveryFeatureWithAFieldOfTheWrongKind) {
  std::mt19937 random(12);
  const boost::json::value bases = boost::json::parse(ReadFile(TestData("features_base.json")));
  int accepted = 0;
  for (const auto& line : ReadJsonLines(TestData("features.jsonl"))) {
    for (int round = 0; round < 12; ++round) {
      boost::json::object file = bases.at(line.at("base").as_string()).as_object();
      boost::json::value patch = line.at("patch");
      std::vector<boost::json::value*> places;
      for (auto& field : patch.as_object()) {
        if (field.key() != "model") Collect(field.value(), places);
      }
      if (places.empty()) continue;
      *places[random() % places.size()] = Hostile(random);
      for (auto& field : patch.as_object()) {
        if (field.key() != "model") file[field.key()] = field.value();
      }
      TryFile(boost::json::serialize(file), "", accepted);
    }
  }
  EXPECT_GT(accepted, 50);
}

TEST(TokenizerHostile, SurvivesChangedBytes) {
  std::mt19937 random(13);
  int accepted = 0;
  for (const char* name : {"llama", "mistral"}) {
    const std::string original = TinyFile(name);
    for (int round = 0; round < 1000; ++round) {
      std::string file = original;
      for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
        const size_t at = random() % file.size();
        const size_t count = std::min<size_t>(1 + random() % 20, file.size() - at);
        switch (random() % 4) {
          case 0:
            file[at] = static_cast<char>(random());
            break;
          case 1:
            file.erase(at, count);
            break;
          case 2:
            file.insert(at, file.substr(random() % file.size(), count));
            break;
          default:
            file[at] = "{}[]\",:0-9e"[random() % 11];
            break;
        }
      }
      TryFile(file, "", accepted);
    }
    for (size_t bytes = 0; bytes < original.size(); bytes += 97) {
      EXPECT_FALSE(Tokenizer::FromJson(original.substr(0, bytes), "").ok());
    }
  }
  EXPECT_GT(accepted, 10);
}

Status ErrorOf(std::string_view json, std::string_view config = "") {
  return Tokenizer::FromJson(json, config).status();
}

TEST(TokenizerHostile, SaysWhatIsWrong) {
  const auto message = [](std::string_view json) { return Message(ErrorOf(json)); };
  EXPECT_EQ(message("[]"), "tokenizer.json is not an object");
  EXPECT_EQ(message("{}"), "tokenizer.json.model is missing");
  EXPECT_EQ(message(R"({"model":{"type":"WordPiece"}})"),
            "model 'WordPiece' is not supported; BPE and Unigram are");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}})"),
            "id 0 is given to two tokens");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})"),
            "a token has the id -1, ids from 0 to 4194303 are accepted");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":4000000},"merges":[]}})"),
            "a token has the id 4000000, 4000000 above the ids before it");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
            "entry 0 of model.merges joins or makes a token that the vocabulary lacks");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{},"merges":[]}})"),
            "the tokenizer has no tokens");
  EXPECT_EQ(message(R"({"model":{"type":"Unigram","unk_id":3,"vocab":[["a",0.0]]}})"),
            "model.unk_id is not an integer from 0 to 0");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"added_tokens":
                       [{"id":1,"content":"a"}]})"),
            "added token 1 is token 0 of the vocabulary");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"normalizer":
                       {"type":"Odd"}})"),
            "normalizer 'Odd' is not supported");
}

TEST(TokenizerHostile, RefusesDeepNesting) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_FALSE(ErrorOf(deep).ok());
  EXPECT_FALSE(ErrorOf("{\"model\":" + deep + "}").ok());
  std::string normalizer = R"({"type":"NFC"})";
  for (int i = 0; i < 12; ++i) {
    normalizer = R"({"type":"Sequence","normalizers":[)" + normalizer + "]}";
  }
  const Status status = ErrorOf(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},)"
                                R"("normalizer":)" +
                                normalizer + "}");
  EXPECT_EQ(Message(status), "normalizers are nested over 8 deep");
}

TEST(TokenizerHostile, ChecksTheConfig) {
  const std::string file = TinyFile("llama");
  EXPECT_TRUE(ErrorOf(file, "{}").ok());
  EXPECT_FALSE(ErrorOf(file, "[]").ok());
  EXPECT_FALSE(ErrorOf(file, R"({"bos_token":7})").ok());
  EXPECT_EQ(Message(ErrorOf(file, R"({"eos_token":"<nothing>"})")),
            "tokenizer_config.eos_token is not in the vocabulary");
  EXPECT_TRUE(ErrorOf(file, R"({"eos_token":{"content":"<|eot_id|>"}})").ok());
}

TEST(TokenizerHostile, ChecksAGgufVocabulary) {
  const TokenizerSpec good{.model = "llama",
                           .tokens = {"<unk>", "a", "<0x41>"},
                           .scores = {0, -1, 0},
                           .types = {TokenType::kUnknown, TokenType::kNormal, TokenType::kByte}};
  EXPECT_TRUE(Tokenizer::Create(good).ok());
  const auto refused = [&good](auto change) {
    TokenizerSpec spec = good;
    change(spec);
    return !Tokenizer::Create(spec).ok();
  };
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.model = "bert"; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.tokens.clear(); }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.scores.pop_back(); }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.types.pop_back(); }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.scores[1] = NAN; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.bos_id = 3; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.eos_id = -1; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.unknown_id = 1 << 30; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.add_bos = true; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.tokens[1] = std::string(2000, 'a'); }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) { s.tokens[2] = "<0xZZ>"; }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) {
    s.model = "gpt2";
    s.pre = "gpt-2";
    s.merges = {"a"};
  }));
  EXPECT_TRUE(refused([](TokenizerSpec& s) {
    s.model = "gpt2";
    s.pre = "gpt-2";
    s.merges = {"a zz"};
  }));
  // Odd, but no reason to refuse: infinite scores, empty and equal tokens, no types.
  TokenizerSpec odd{.model = "llama", .tokens = {"", "a", "a", "\xFF", "aa"}};
  odd.scores = {0, INFINITY, -INFINITY, 1, -0.0f};
  const auto tokenizer = Tokenizer::Create(odd);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  Exercise(*tokenizer);
}

// A token type outside the enumeration, as a cast from a file gives it.
TEST(TokenizerHostile, TakesAnUnknownTokenTypeAsNotText) {
  TokenizerSpec spec{.model = "llama", .tokens = {"a", "b"}, .scores = {0, 0}};
  spec.types = {static_cast<TokenType>(77), TokenType::kNormal};
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->Encode("ab", {}), (std::vector<TokenId>{1}));
}

}  // namespace
}  // namespace polysil

// TOK-07, TOK-08: time is linear in the text, whatever the text; nothing recurses with it.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <random>

#include "text/cpu_time.h"
#include "text/golden_files.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

namespace polysil {
namespace {

std::string Repeat(std::string_view part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

std::string Base64(size_t bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::mt19937 random(1);
  std::string text(bytes, ' ');
  for (char& c : text) c = kDigits[random() % kDigits.size()];
  return text;
}

std::string Cjk(size_t bytes) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < bytes) AppendUtf8(0x4E00 + random() % 5000, text);
  return text;
}

std::string MarksInTheWrongOrder(size_t bytes) {
  return Repeat("\u0301\u0316", bytes);
}

struct Kind {
  const char* name;
  std::function<std::string(size_t)> make;
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {"one letter", [](size_t n) { return std::string(n, 'a'); }},
      {"capitals", [](size_t n) { return std::string(n, 'Z'); }},
      {"ab", [](size_t n) { return Repeat("ab", n); }},
      {"underscores", [](size_t n) { return std::string(n, '_'); }},
      {"carets", [](size_t n) { return std::string(n, '^'); }},
      {"spaces", [](size_t n) { return std::string(n, ' '); }},
      {"spaces before a letter", [](size_t n) { return std::string(n, ' ') + "x"; }},
      {"lines", [](size_t n) { return std::string(n, '\n'); }},
      {"digits", [](size_t n) { return Repeat("1234567890", n); }},
      {"digits before a letter", [](size_t n) { return std::string(n, '7') + "x"; }},
      {"angle brackets", [](size_t n) { return Repeat("<|im_", n); }},
      {"base64", Base64},
      {"cjk", Cjk},
      {"marks", MarksInTheWrongOrder},
      {"ill-formed", [](size_t n) { return Repeat("\xF0\x9F", n); }}};
  return kinds;
}

double Seconds(const Tokenizer& tokenizer, const std::string& text) {
  const double begin = CpuSeconds();
  tokenizer.Encode(text, {.parse_control_tokens = true});
  return CpuSeconds() - begin;
}

// A second for 1 MB at most, and for four times the text not much over four times the time.
void ExpectLinear(const Tokenizer& tokenizer, const std::string& name, size_t bytes) {
  for (const Kind& kind : Kinds()) {
    const std::string text = kind.make(bytes);
    const std::string quarter = kind.make(bytes / 4);
    double small = 1e9;
    double large = 1e9;
    for (int i = 0; i < 2; ++i) {  // the least of a few: other programs disturb
      small = std::min(small, Seconds(tokenizer, quarter));
      large = std::min(large, Seconds(tokenizer, text));
    }
    EXPECT_LT(large, static_cast<double>(bytes) * 1e-6 * kSlowdown) << name << ", " << kind.name;
    EXPECT_LT(large, 4 * 2.5 * small + 0.02 * kSlowdown) << name << ", " << kind.name;
  }
}

std::shared_ptr<const Tokenizer> Feature(std::string_view name) {
  const auto bases = boost::json::parse(ReadFile(TestData("features_base.json")));
  for (const auto& line : ReadJsonLines(TestData("features.jsonl"))) {
    if (AsString(line.at("name")) != name) continue;
    boost::json::object file = bases.at(line.at("base").as_string()).as_object();
    for (const auto& field : line.at("patch").as_object()) file[field.key()] = field.value();
    std::ostringstream text;
    text << file;
    auto tokenizer = Tokenizer::FromJson(text.str(), "");
    CHECK(tokenizer.ok(), "{}", Message(tokenizer.status()));
    return *std::move(tokenizer);
  }
  return nullptr;
}

TEST(TokenizerLinear, ByteLevel) {
  ExpectLinear(*SmolLm2(), "SmolLM2", 1 << 20);
}

TEST(TokenizerLinear, SentencePieceAndUnigramAndNormalizers) {
  for (const char* name : {"llama2-legacy", "gemma", "unigram", "NFKC", "NFD", "bert-True-True",
                           "regex-cl100k-possessive"}) {
    ExpectLinear(*Feature(name), name, 1 << 18);
  }
}

class CountingSink final : public PieceSink {
 public:
  void Piece(std::string_view piece, bool /*at_start*/) override { bytes += piece.size(); }
  size_t bytes = 0;
};

TEST(TokenizerLinear, EveryNamedPreTokenizer) {
  constexpr size_t kBytes = 1 << 18;
  for (const auto& line : ReadJsonLines(TestData("pre_tokenizers.jsonl"))) {
    const std::string name = AsString(line.at("names").at(0));
    const auto named = MakeNamedPreTokenizer(name);
    ASSERT_TRUE(named.ok());
    for (const Kind& kind : Kinds()) {
      const std::string text = kind.make(kBytes);
      CountingSink sink;
      const double begin = CpuSeconds();
      named->pre_tokenizer.Split(text, true, sink);
      EXPECT_LT(CpuSeconds() - begin, 0.5 * kSlowdown) << name << ", " << kind.name;
      EXPECT_EQ(sink.bytes, text.size()) << name << ", " << kind.name;
    }
  }
}

TEST(TokenizerLinear, WorksOnASmallStack) {
  const auto run = [](void* /*unused*/) -> void* {
    for (const Kind& kind : Kinds()) {
      EXPECT_FALSE(SmolLm2()->Encode(kind.make(1 << 19), {}).empty()) << kind.name;
    }
    return nullptr;
  };
  SmolLm2();
  Kinds();
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, run, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(TokenizerLinear, ManyThreadsShareATokenizer) {
  const std::string text = Base64(20000) + " It's 1234 texts. " + std::string(3000, 'a');
  const auto expected = SmolLm2()->Encode(text, {});
  std::vector<pthread_t> threads(8);
  struct Shared {
    const std::string& text;
    const std::vector<TokenId>& expected;
  } shared{text, expected};
  const auto run = [](void* argument) -> void* {
    const auto* const s = static_cast<Shared*>(argument);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(SmolLm2()->Encode(s->text, {}), s->expected);
    return nullptr;
  };
  for (pthread_t& thread : threads) ASSERT_EQ(pthread_create(&thread, nullptr, run, &shared), 0);
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
}

}  // namespace
}  // namespace polysil

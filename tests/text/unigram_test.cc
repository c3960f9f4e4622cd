#include "text/unigram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace polysil {
namespace {

constexpr TokenId kUnknown = 100;

std::unique_ptr<const UnigramModel> MakeModel(const std::vector<UnigramToken>& tokens) {
  UnigramVocabulary vocabulary{.tokens = tokens, .unknown_id = kUnknown};
  vocabulary.byte_ids.fill(UnigramVocabulary::kNone);
  for (const UnigramToken& token : tokens) {
    vocabulary.score_min = std::min(vocabulary.score_min, token.score);
  }
  auto model = UnigramModel::Build(std::move(vocabulary));
  EXPECT_TRUE(model.ok());
  return *std::move(model);
}

std::vector<TokenId> Encode(const UnigramModel& model, std::string_view text) {
  std::vector<TokenId> ids;
  model.Encode(text, ids);
  return ids;
}

// The best sum over all ways, tried one by one.
double BestScore(const std::vector<UnigramToken>& tokens, std::string_view text) {
  if (text.empty()) return 0;
  double best = -std::numeric_limits<double>::infinity();
  for (const UnigramToken& token : tokens) {
    if (!text.starts_with(token.text)) continue;
    best = std::max(best, token.score + BestScore(tokens, text.substr(token.text.size())));
  }
  return best;
}

TEST(UnigramModel, FindsTheBestWay) {
  std::mt19937 random(5);
  const auto letters = [&random](size_t count) {
    std::string text(count, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<UnigramToken> tokens = {{"a", -3.0, 0}, {"b", -3.5, 1}};
    for (TokenId id = 2; id < 12; ++id) {
      const std::string text = letters(2 + random() % 3);
      if (std::none_of(tokens.begin(), tokens.end(),
                       [&](const UnigramToken& token) { return token.text == text; })) {
        tokens.push_back({text, -static_cast<double>(random() % 1000) / 100, id});
      }
    }
    const auto model = MakeModel(tokens);
    const std::string text = letters(random() % 12);
    double score = 0;
    std::string joined;
    for (const TokenId id : Encode(*model, text)) {
      const auto token = std::find_if(tokens.begin(), tokens.end(),
                                      [id](const UnigramToken& t) { return t.id == id; });
      score += token->score;
      joined += token->text;
    }
    ASSERT_EQ(joined, text);
    ASSERT_NEAR(score, BestScore(tokens, text), 1e-9) << text;
  }
}

TEST(UnigramModel, ARunOfUnknownCharactersIsOneToken) {
  const auto model = MakeModel({{"a", -1, 0}, {"ab", -1, 1}});
  EXPECT_EQ(Encode(*model, "xyéa"), (std::vector<TokenId>{kUnknown, 0}));
  EXPECT_EQ(Encode(*model, "axaby"), (std::vector<TokenId>{0, kUnknown, 1, kUnknown}));
  EXPECT_EQ(Encode(*model, "b"), (std::vector<TokenId>{kUnknown}));
  EXPECT_EQ(Encode(*model, ""), (std::vector<TokenId>{}));
  EXPECT_EQ(Encode(*model,
                   "\xFF"
                   "a\xE2\x82"),
            (std::vector<TokenId>{kUnknown, 0, kUnknown}));
}

}  // namespace
}  // namespace polysil

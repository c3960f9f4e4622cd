// BpeModel against the definition of byte-pair encoding, on vocabularies drawn at random: what real
// ones never do (a merge that makes a pair of a lower rank) happens here all the time.
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "text/golden_files.h"

namespace polysil {
namespace {

struct RandomVocabulary {
  std::vector<std::string> tokens;  // by id
  std::vector<BpeMerge> merges;
};

RandomVocabulary MakeVocabulary(std::mt19937& random, bool shared_ranks) {
  RandomVocabulary vocabulary{.tokens = {"a", "b", "c"}};
  std::map<std::pair<int32_t, int32_t>, bool> used;
  for (int i = 0; i < 40; ++i) {
    const auto left = static_cast<int32_t>(random() % vocabulary.tokens.size());
    const auto right = static_cast<int32_t>(random() % vocabulary.tokens.size());
    if (!used.try_emplace({left, right}, true).second) continue;
    const std::string text = vocabulary.tokens[static_cast<size_t>(left)] +
                             vocabulary.tokens[static_cast<size_t>(right)];
    const auto known = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), text);
    const auto result = static_cast<int32_t>(known - vocabulary.tokens.begin());
    if (known == vocabulary.tokens.end()) vocabulary.tokens.push_back(text);
    const auto rank = static_cast<uint32_t>(vocabulary.merges.size());
    vocabulary.merges.push_back({.left = left, .right = right, .result = result, .rank = rank});
  }
  for (size_t i = 0; i < vocabulary.merges.size(); ++i) {
    std::swap(vocabulary.merges[i].rank,
              vocabulary.merges[random() % vocabulary.merges.size()].rank);
  }
  if (shared_ranks) {
    for (BpeMerge& merge : vocabulary.merges) merge.rank /= 4;
  }
  return vocabulary;
}

std::unique_ptr<const BpeModel> MakeModel(const RandomVocabulary& random) {
  BpeVocabulary vocabulary;
  vocabulary.byte_ids.fill(TokenIndex::kNone);
  vocabulary.symbols_begin = static_cast<int32_t>(random.tokens.size());
  vocabulary.merges = random.merges;
  for (size_t i = 0; i < random.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    vocabulary.tokens.Insert(random.tokens[i], id);
    if (random.tokens[i].size() == 1) {
      vocabulary.byte_ids[static_cast<uint8_t>(random.tokens[i][0])] = id;
    }
  }
  return BpeModel::Build(std::move(vocabulary), {.byte_level = true});
}

// The pair of the lowest rank, leftmost on ties, until there is none.
std::vector<TokenId> Definition(const RandomVocabulary& vocabulary, const std::string& text) {
  std::map<std::pair<int32_t, int32_t>, BpeMerge> pairs;
  for (const BpeMerge& merge : vocabulary.merges) pairs[{merge.left, merge.right}] = merge;
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(c - 'a');
  while (true) {
    const BpeMerge* best = nullptr;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto pair = pairs.find({ids[i], ids[i + 1]});
      if (pair == pairs.end() || (best != nullptr && pair->second.rank >= best->rank)) continue;
      best = &pair->second;
      best_at = i;
    }
    if (best == nullptr) return ids;
    ids[best_at] = best->result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

std::string RandomText(std::mt19937& random, size_t bytes) {
  const uint32_t letters = 1 + random() % 3;
  std::string text(bytes, 'a');
  if (random() % 3 == 0) {  // few runs
    for (size_t at = 0; at < bytes; at += 1 + random() % bytes) {
      std::fill(text.begin() + static_cast<ptrdiff_t>(at), text.end(),
                static_cast<char>('a' + random() % letters));
    }
    return text;
  }
  for (char& c : text) c = static_cast<char>('a' + random() % letters);
  return text;
}

void CompareWithDefinition(bool shared_ranks) {
  std::mt19937 random(shared_ranks ? 1 : 2);
  for (int round = 0; round < 300; ++round) {
    const RandomVocabulary vocabulary = MakeVocabulary(random, shared_ranks);
    const auto model = MakeModel(vocabulary);
    for (int i = 0; i < 10; ++i) {
      // Up to 48 symbols go the short way, more the long one.
      const std::string text = RandomText(random, i % 2 == 0 ? random() % 48 : random() % 400);
      std::vector<TokenId> ids;
      model->Encode(text, ids);
      ASSERT_EQ(ids, Definition(vocabulary, text)) << text;
    }
  }
}

TEST(BpeModel, EqualsItsDefinition) {
  CompareWithDefinition(false);
}
TEST(BpeModel, EqualsItsDefinitionWhenRanksAreShared) {
  CompareWithDefinition(true);
}

// The rule of scores: the adjacent pair whose joined text is the token of the best score.
std::vector<TokenId> ScoreDefinition(const TokenizerSpec& spec, const std::string& text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  const auto id_of = [&spec](const std::string& token) {
    const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), token);
    return found == spec.tokens.end() ? -1 : static_cast<TokenId>(found - spec.tokens.begin());
  };
  while (true) {
    TokenId best = -1;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const TokenId id = id_of(symbols[i] + symbols[i + 1]);
      if (id < 0) continue;
      if (best >= 0 &&
          spec.scores[static_cast<size_t>(id)] <= spec.scores[static_cast<size_t>(best)]) {
        continue;
      }
      best = id;
      best_at = i;
    }
    if (best < 0) break;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
  std::vector<TokenId> ids;
  for (const std::string& symbol : symbols) ids.push_back(id_of(symbol));
  return ids;
}

TEST(BpeModel, EqualsTheRuleOfScores) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    TokenizerSpec spec{.model = "llama", .tokens = {"a", "b", "c"}, .add_space_prefix = false};
    while (spec.tokens.size() < 30) {
      const std::string token = RandomText(random, 2 + random() % 5);
      if (std::find(spec.tokens.begin(), spec.tokens.end(), token) == spec.tokens.end()) {
        spec.tokens.push_back(token);
      }
    }
    for (size_t i = 0; i < spec.tokens.size(); ++i) {
      spec.scores.push_back(static_cast<float>(random() % 12));
    }
    const auto tokenizer = Tokenizer::Create(spec);
    ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
    for (int i = 0; i < 10; ++i) {
      const std::string text = RandomText(random, random() % 150);
      ASSERT_EQ((*tokenizer)->Encode(text, {}), ScoreDefinition(spec, text)) << text;
    }
  }
}

// A character that is no token itself can still be part of one, and falls back to bytes elsewhere.
TEST(BpeModel, JoinsCharactersThatAreNoTokens) {
  const TokenizerSpec spec{.model = "llama",
                           .tokens = {"<unk>", "a", "aé", "<0xC3>", "<0xA9>"},
                           .scores = {0, -1, -2, 0, 0},
                           .types = {TokenType::kUnknown, TokenType::kNormal, TokenType::kNormal,
                                     TokenType::kByte, TokenType::kByte},
                           .add_space_prefix = false};
  const auto tokenizer = Tokenizer::Create(spec);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ((*tokenizer)->Encode("aéé", {}), (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ((*tokenizer)->Encode("x\xC3", {}), (std::vector<TokenId>{0, 3}));
}

}  // namespace
}  // namespace polysil

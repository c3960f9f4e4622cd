#include "exec/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "exec/logit_math.h"

namespace polysil {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(int32_t vocab, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

SampleRow RowOf(const SamplingParams& params, int32_t position = 0) {
  return {.params = &params, .position = position};
}

TokenId Sample(const std::vector<float>& logits, const SamplingParams& params,
               int32_t position = 0) {
  Sampler sampler(static_cast<int32_t>(logits.size()));
  const auto sampled = sampler.Sample(logits, RowOf(params, position));
  EXPECT_TRUE(sampled.ok()) << sampled.status();
  return sampled.ok() ? sampled->id : -1;
}

TEST(Sampler, GreedyTakesTheHighestLogitAndTheLowestIdOnTies) {
  std::vector<float> logits(1000, -3.0F);
  logits[700] = logits[300] = logits[901] = 2.0F;
  EXPECT_EQ(Sample(logits, {.temperature = 0.0F}), 300);
  logits[999] = 2.5F;
  EXPECT_EQ(Sample(logits, {.temperature = 0.0F}), 999);
}

TEST(Sampler, TinyTemperaturesActLikeZero) {
  const std::vector<float> logits = RandomLogits(5000, 3.0F, 1);
  const TokenId best = Sample(logits, {.temperature = 0.0F});
  for (const float temperature : {1e-4F, 1e-6F, 1e-12F, 1e-30F, 1e-38F, 1e-45F}) {
    for (int32_t position = 0; position < 50; ++position) {
      EXPECT_EQ(Sample(logits, {.temperature = temperature}, position), best) << temperature;
      EXPECT_EQ(Sample(logits, {.temperature = temperature, .top_p = 0.9F}, position), best);
      EXPECT_EQ(Sample(logits, {.temperature = temperature, .top_k = 5}, position), best);
    }
  }
}

TEST(Sampler, FiltersAlwaysKeepTheBestToken) {
  const std::vector<float> logits = RandomLogits(5000, 1.0F, 2);
  const TokenId best = Sample(logits, {.temperature = 0.0F});
  for (int32_t position = 0; position < 50; ++position) {
    EXPECT_EQ(Sample(logits, {.top_p = 1e-9F}, position), best);
    EXPECT_EQ(Sample(logits, {.top_k = 1}, position), best);
    EXPECT_EQ(Sample(logits, {.min_p = 1.0F}, position), best);
  }
}

TEST(Sampler, TopKAboveTheVocabularyIsOff) {
  const std::vector<float> logits = RandomLogits(300, 1.0F, 3);
  for (int32_t position = 0; position < 200; ++position) {
    const TokenId plain = Sample(logits, {}, position);
    EXPECT_EQ(Sample(logits, {.top_k = 300}, position), plain);
    EXPECT_EQ(Sample(logits, {.top_k = std::numeric_limits<int32_t>::max()}, position), plain);
  }
}

TEST(Sampler, EqualLogitsUnderTopKKeepTheLowestIds) {
  const std::vector<float> logits(10000, 1.0F);
  for (int32_t position = 0; position < 200; ++position) {
    EXPECT_LT(Sample(logits, {.top_k = 7}, position), 7);
    EXPECT_LT(Sample(logits, {.top_p = 0.001F}, position), 11);
  }
}

TEST(Sampler, DrawsDependOnSeedSequenceAndPositionAlone) {
  const std::vector<float> logits = RandomLogits(4000, 0.5F, 4);
  const std::vector<float> other = RandomLogits(4000, 2.0F, 5);
  const SamplingParams params{.top_p = 0.95F, .seed = 42};
  Sampler sampler(4000);
  std::vector<TokenId> forward;
  for (int32_t position = 0; position < 64; ++position) {
    forward.push_back(sampler.Sample(logits, RowOf(params, position))->id);
  }
  // Another order, other rows between, another sampler: the same tokens.
  Sampler second(4000);
  for (int32_t position = 63; position >= 0; --position) {
    ASSERT_TRUE(second.Sample(other, RowOf(params, position)).ok());
    EXPECT_EQ(second.Sample(logits, RowOf(params, position))->id, forward[position]);
  }
  std::vector<TokenId> other_seed;
  std::vector<TokenId> other_index;
  const SamplingParams reseeded{.top_p = 0.95F, .seed = 43};
  for (int32_t position = 0; position < 64; ++position) {
    other_seed.push_back(sampler.Sample(logits, RowOf(reseeded, position))->id);
    SampleRow row = RowOf(params, position);
    row.sequence_index = 1;
    other_index.push_back(sampler.Sample(logits, row)->id);
  }
  EXPECT_NE(other_seed, forward);
  EXPECT_NE(other_index, forward);
}

TEST(Sampler, PenaltiesLookAtTheRightTokens) {
  // Token 3 stands in the prompt alone, token 5 was chosen twice.
  const std::vector<TokenId> prompt = {3, 3, 3, 3, 3};
  TokenCounts counts(prompt);
  std::vector<float> logits(8, -10.0F);
  const auto best = [&](const SamplingParams& params) {
    Sampler sampler(8);
    SampleRow row = RowOf(params);
    row.counts = &counts;
    return sampler.Sample(logits, row)->id;
  };
  logits[3] = 5.0F;
  logits[4] = 4.9F;
  EXPECT_EQ(best({.temperature = 0.0F, .presence_penalty = 1.0F}), 3) << "output alone";
  EXPECT_EQ(best({.temperature = 0.0F, .frequency_penalty = 1.0F}), 3) << "output alone";
  EXPECT_EQ(best({.temperature = 0.0F, .repetition_penalty = 2.0F}), 4) << "prompt too";
  counts.AddOutput(5);
  counts.AddOutput(5);
  logits[5] = 7.0F;
  EXPECT_EQ(best({.temperature = 0.0F, .presence_penalty = 1.9F}), 5) << "7 - 1.9 = 5.1";
  EXPECT_EQ(best({.temperature = 0.0F, .presence_penalty = 2.0F}), 3) << "5.0, lowest id";
  EXPECT_EQ(best({.temperature = 0.0F, .frequency_penalty = 0.9F}), 5) << "7 - 2 * 0.9 = 5.2";
  EXPECT_EQ(best({.temperature = 0.0F, .frequency_penalty = 1.1F}), 3) << "7 - 2 * 1.1 = 4.8";
  EXPECT_EQ(best({.temperature = 0.0F, .presence_penalty = -2.0F}), 5) << "lifted to 9";
  // Negative logits are multiplied.
  std::fill(logits.begin(), logits.end(), -10.0F);
  logits[3] = -1.0F;
  logits[4] = -1.5F;
  EXPECT_EQ(best({.temperature = 0.0F, .repetition_penalty = 2.0F}), 4);
}

TEST(Sampler, ExtremePenaltiesStayFinite) {
  const std::vector<TokenId> prompt = {0, 1, 2};
  const TokenCounts counts(prompt);
  const std::vector<float> logits = {3.0F, -3.0F, 0.0F, 1.0F};
  for (const float penalty : {1e-30F, 1e-38F, 1e-45F, 1e30F, 3e38F}) {
    for (const float temperature : {0.0F, 1e-6F, 1.0F}) {
      const SamplingParams params{.temperature = temperature, .repetition_penalty = penalty};
      Sampler sampler(4);
      SampleRow row = RowOf(params);
      row.counts = &counts;
      const auto sampled = sampler.Sample(logits, row);
      ASSERT_TRUE(sampled.ok()) << sampled.status();
      EXPECT_EQ(sampled->id, penalty < 1.0F ? 0 : (temperature < 1.0F ? 3 : sampled->id));
    }
  }
}

TEST(Sampler, BiasMovesSingleTokens) {
  const std::vector<float> logits = RandomLogits(1000, 1.0F, 6);
  const TokenId best = Sample(logits, {.temperature = 0.0F});
  SamplingParams params{.temperature = 0.0F, .logit_bias = {{999, 100.0F}}};
  EXPECT_EQ(Sample(logits, params), 999);
  params.logit_bias = {{best, -100.0F}};
  EXPECT_NE(Sample(logits, params), best);
}

TEST(Sampler, EndTokensWaitForTheMinimum) {
  const std::vector<float> logits = {5.0F, 4.0F, 3.0F, 2.0F};
  const std::vector<TokenId> ends = {0, 1};
  // Not even a bias brings them back.
  const SamplingParams params{
      .temperature = 0.0F, .logit_bias = {{0, 100.0F}}, .tokens_max = 9, .tokens_min = 3};
  Sampler sampler(4);
  for (int32_t output_tokens = 0; output_tokens < 5; ++output_tokens) {
    SampleRow row = RowOf(params);
    row.end_token_ids = ends;
    row.output_tokens = output_tokens;
    EXPECT_EQ(sampler.Sample(logits, row)->id, output_tokens < 3 ? 2 : 0);
  }
}

TEST(Sampler, SaysSoWhereNoTokenMayBeChosen) {
  const std::vector<float> logits = {5.0F, 4.0F};
  const std::vector<TokenId> ends = {0, 1};
  const SamplingParams params{.tokens_max = 9, .tokens_min = 3};
  Sampler sampler(2);
  SampleRow row = RowOf(params);
  row.end_token_ids = ends;
  EXPECT_EQ(sampler.Sample(logits, row).status().code(), StatusCode::kInternal);
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    for (const int32_t place : {0, 63, 64, 500, 999}) {
      std::vector<float> logits = RandomLogits(1000, 1.0F, 7);
      logits[place] = bad;
      for (const float temperature : {0.0F, 1.0F}) {
        Sampler sampler(1000);
        const SamplingParams params{.temperature = temperature};
        const auto sampled = sampler.Sample(logits, RowOf(params));
        EXPECT_EQ(sampled.status().code(), StatusCode::kInternal);
        EXPECT_EQ(sampler.Logprobs(logits, 0, 0).status().code(), StatusCode::kInternal);
      }
    }
  }
}

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = RandomLogits(3000, 2.0F, 8);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  std::vector<TokenId> order(3000);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  const SamplingParams variants[] = {
      {.temperature = 0.0F, .logprobs = 20},
      {.temperature = 2.0F, .seed = 3, .logprobs = 20},
      {.temperature = 0.1F, .top_k = 3, .logprobs = 20},
      {.temperature = 0.0F, .logit_bias = {{order[2999], 100.0F}}, .logprobs = 20},
  };
  for (const SamplingParams& params : variants) {
    Sampler sampler(3000);
    const auto sampled = sampler.Sample(logits, RowOf(params));
    ASSERT_TRUE(sampled.ok());
    const TokenLogprobs& logprobs = *sampled->logprobs;
    EXPECT_EQ(logprobs.chosen.id, sampled->id);
    EXPECT_NEAR(logprobs.chosen.logprob, logits[sampled->id] - std::log(sum), 1e-5);
    ASSERT_EQ(logprobs.top.size(), 20U);
    for (size_t i = 0; i < logprobs.top.size(); ++i) {
      EXPECT_EQ(logprobs.top[i].id, order[i]);
      EXPECT_NEAR(logprobs.top[i].logprob, logits[order[i]] - std::log(sum), 1e-5);
    }
  }
  EXPECT_EQ(Sample(logits, variants[3]), order[2999]) << "chosen, though it is not in the list";
}

TEST(Sampler, TopListsFitSmallVocabularies) {
  Sampler sampler(3);
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F};
  const auto logprobs = sampler.Logprobs(logits, 0, 20);
  ASSERT_TRUE(logprobs.ok());
  ASSERT_EQ(logprobs->top.size(), 3U);
  EXPECT_EQ(logprobs->top[0].id, 1);
  EXPECT_EQ(logprobs->top[1].id, 2);
  EXPECT_EQ(logprobs->top[2].id, 0);
  EXPECT_TRUE(sampler.Logprobs(logits, 2, 0)->top.empty());
}

// What the documentation says, written down plainly: sort, filter one after the other, normalise.
std::map<TokenId, double> ExactDistribution(const std::vector<float>& logits,
                                            const SamplingParams& params) {
  std::vector<std::pair<double, TokenId>> ranked;
  double largest = -INFINITY;
  for (const float x : logits) largest = std::max<double>(largest, x);
  for (size_t id = 0; id < logits.size(); ++id) {
    ranked.emplace_back(-std::exp((logits[id] - largest) / params.temperature), id);
  }
  std::sort(ranked.begin(), ranked.end());
  if (params.min_p > 0.0F) {
    std::erase_if(ranked, [&](const auto& entry) { return -entry.first < params.min_p; });
  }
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(ranked.size())) {
    ranked.resize(params.top_k);
  }
  double total = 0.0;
  for (const auto& [weight, id] : ranked) total -= weight;
  std::map<TokenId, double> kept;
  double mass = 0.0;
  for (const auto& [weight, id] : ranked) {
    kept[id] = -weight;
    mass -= weight;
    if (mass >= params.top_p * total) break;
  }
  for (auto& [id, probability] : kept) probability /= mass;
  return kept;
}

// Chi-squared of `draws` samples against exact probabilities, cells below 5 expected joined.
// Returns how many standard deviations it lies above its mean.
double ChiSquaredExcess(const std::vector<float>& logits, const SamplingParams& params,
                        int32_t draws) {
  const std::map<TokenId, double> exact = ExactDistribution(logits, params);
  std::map<TokenId, int32_t> seen;
  Sampler sampler(static_cast<int32_t>(logits.size()));
  for (int32_t position = 0; position < draws; ++position) {
    const auto sampled = sampler.Sample(logits, RowOf(params, position));
    EXPECT_TRUE(sampled.ok());
    EXPECT_TRUE(exact.contains(sampled->id)) << "token " << sampled->id << " was filtered out";
    ++seen[sampled->id];
  }
  double chi_squared = 0.0;
  double rest_expected = 0.0;
  double rest_seen = 0.0;
  int32_t cells = 0;
  for (const auto& [id, probability] : exact) {
    const double expected = probability * draws;
    if (expected < 5.0) {
      rest_expected += expected;
      rest_seen += seen[id];
      continue;
    }
    chi_squared += (seen[id] - expected) * (seen[id] - expected) / expected;
    ++cells;
  }
  if (rest_expected >= 5.0) {
    chi_squared += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    ++cells;
  }
  const double freedom = std::max(1, cells - 1);
  return (chi_squared - freedom) / std::sqrt(2.0 * freedom);
}

TEST(Sampler, DrawsFollowTheExactDistribution) {
  const SamplingParams variants[] = {
      {.temperature = 1.0F},
      {.temperature = 0.7F},
      {.temperature = 1.9F},
      {.top_p = 0.9F},
      {.top_p = 0.3F},
      {.temperature = 1.5F, .top_p = 0.99F},
      {.top_k = 40},
      {.top_k = 3},
      {.top_k = 200},
      {.min_p = 0.05F},
      {.temperature = 1.3F, .top_p = 0.8F, .top_k = 50},
      {.temperature = 0.8F, .top_p = 0.9F, .top_k = 30, .min_p = 0.02F},
      {.top_p = 0.7F, .min_p = 0.01F},
  };
  for (const auto& [vocab, spread] :
       {std::pair(7, 1.0F), std::pair(100, 2.0F), std::pair(517, 0.1F), std::pair(2000, 3.0F)}) {
    const std::vector<float> logits = RandomLogits(vocab, spread, vocab);
    for (SamplingParams params : variants) {
      params.seed = 1234 + vocab;
      const double excess = ChiSquaredExcess(logits, params, 12000);
      EXPECT_LT(excess, 5.0) << "vocabulary " << vocab << ", temperature " << params.temperature
                             << ", top_p " << params.top_p << ", top_k " << params.top_k
                             << ", min_p " << params.min_p;
    }
  }
}

// A sampler of a slightly other temperature must be told apart, or the test above shows nothing.
TEST(Sampler, TheChiSquaredTestHasTeeth) {
  const std::vector<float> logits = RandomLogits(517, 2.0F, 9);
  const SamplingParams drawn{.temperature = 1.05F, .seed = 5};
  std::vector<float> warmer = logits;
  for (float& logit : warmer) logit /= 1.05F;
  EXPECT_LT(ChiSquaredExcess(logits, drawn, 20000), 5.0);
  std::map<TokenId, int32_t> seen;
  Sampler sampler(517);
  const std::map<TokenId, double> wrong = ExactDistribution(logits, {.temperature = 1.0F});
  double chi_squared = 0.0;
  for (int32_t position = 0; position < 20000; ++position) {
    ++seen[sampler.Sample(logits, RowOf(drawn, position))->id];
  }
  int32_t cells = 0;
  for (const auto& [id, probability] : wrong) {
    const double expected = probability * 20000;
    if (expected < 5.0) continue;
    chi_squared += (seen[id] - expected) * (seen[id] - expected) / expected;
    ++cells;
  }
  EXPECT_GT((chi_squared - cells) / std::sqrt(2.0 * cells), 5.0);
}

TEST(LogitMath, ExpIsExactEnough) {
  EXPECT_EQ(logit_math::ExpNonPositive(0.0F), 1.0F);
  EXPECT_EQ(logit_math::ExpNonPositive(-kInfinity), 0.0F);
  EXPECT_EQ(logit_math::ExpNonPositive(-81.0F), 0.0F);
  double worst = 0.0;
  for (int i = 0; i < 800000; ++i) {
    const float x = -1e-4F * static_cast<float>(i);
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(logit_math::ExpNonPositive(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(LogitMath, FindsWhatIsNotFinite) {
  std::vector<float> values(130, 1.0F);
  EXPECT_TRUE(logit_math::AllFinite(values));
  values[129] = std::numeric_limits<float>::max();
  EXPECT_TRUE(logit_math::AllFinite(values));
  values[129] = kInfinity;
  EXPECT_FALSE(logit_math::AllFinite(values));
}

// Not a limit that a busy machine could break, but the figure is printed: a row of a 49k
// vocabulary.
TEST(Sampler, PrintsItsSpeed) {
  // Peaked like a language model's: a long tail below a few likely tokens.
  std::vector<float> logits = RandomLogits(49152, 2.5F, 10);
  for (int i = 0; i < 30; ++i) logits[i * 1601] += 8.0F + 0.2F * static_cast<float>(i);
  const std::pair<const char*, SamplingParams> variants[] = {
      {"greedy", {.temperature = 0.0F}},
      {"greedy, 5 logprobs", {.temperature = 0.0F, .logprobs = 5}},
      {"temperature", {}},
      {"top_p 0.95", {.top_p = 0.95F}},
      {"top_k 40", {.top_k = 40}},
      {"top_k 40, top_p 0.9", {.top_p = 0.9F, .top_k = 40}},
      {"min_p 0.05", {.min_p = 0.05F}},
      {"top_p 0.95 with 5 logprobs", {.top_p = 0.95F, .logprobs = 5}},
      {"top_p 0.999, temperature 2", {.temperature = 2.0F, .top_p = 0.999F}},
  };
  for (const auto& [name, params] : variants) {
    Sampler sampler(49152);
    double best_us = INFINITY;
    for (int32_t i = 0; i < 50; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const auto sampled = sampler.Sample(logits, RowOf(params, i));
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      ASSERT_TRUE(sampled.ok());
      best_us = std::min(best_us, took.count());
    }
    std::printf("%-28s %7.1f us a row\n", name, best_us);
  }
}

}  // namespace
}  // namespace polysil

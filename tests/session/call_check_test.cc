#include "session/call_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace polysil {
namespace {

constexpr RequestLimits kEngine{
    .vocab_size = 300, .context_tokens_max = 256, .kv_tokens_max = 1000, .sequences_max = 8};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TextCall Call(const std::function<void(TextCall&)>& change) {
  TextCall call;
  call.prompts.emplace_back("hi");
  change(call);
  return call;
}

std::string RefusedField(const std::function<void(TextCall&)>& change) {
  const Status status = CheckCall(Call(change), TextLimits{}, kEngine);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(Message(status).empty());
  return FieldOf(status);
}

Status Accept(const std::function<void(TextCall&)>& change) {
  return CheckCall(Call(change), TextLimits{}, kEngine);
}

// SMP-05, SMP-06: the matrix of ranges; NaN is in none.
TEST(CallCheck, FloatRanges) {
  struct Case {
    std::string field;
    float SamplingParams::*member;
    std::vector<float> accepted;
    std::vector<float> refused;
  };
  const std::vector<Case> cases = {
      {"temperature", &SamplingParams::temperature, {0, 1e-12F, 2}, {-0.1F, 2.1F, 5}},
      {"top_p", &SamplingParams::top_p, {1e-9F, 0.5F, 1}, {0, -0.1F, 1.0001F}},
      {"min_p", &SamplingParams::min_p, {0, 1}, {-0.1F, 1.1F}},
      {"repetition_penalty",
       &SamplingParams::repetition_penalty,
       {0.01F, 1, 2.5F, 10},
       {0, -1, 1e-30F}},
      {"presence_penalty", &SamplingParams::presence_penalty, {-2, 0, 2}, {-2.1F, 2.1F, 100}},
      {"frequency_penalty", &SamplingParams::frequency_penalty, {-2, 0, 2}, {-2.1F, 2.1F, 100}}};
  for (const Case& test : cases) {
    const auto set = [&](float value) {
      return [&test, value](TextCall& call) { call.sampling.*test.member = value; };
    };
    for (const float value : test.accepted) {
      EXPECT_TRUE(Accept(set(value)).ok()) << test.field << " " << value;
    }
    std::vector<float> refused = test.refused;
    refused.insert(refused.end(), {kNan, kInfinity, -kInfinity});
    for (const float value : refused) {
      EXPECT_EQ(RefusedField(set(value)), test.field) << value;
    }
  }
}

// SMP-04, SMP-09, SMP-11, STP-07, STP-11, LEN-04, LGP-04.
TEST(CallCheck, CountsAndIds) {
  using C = TextCall&;
  EXPECT_TRUE(Accept([](C c) { c.sampling.top_k = -1; }).ok());
  EXPECT_TRUE(Accept([](C c) { c.sampling.top_k = 1'000'000; }).ok());
  EXPECT_EQ(RefusedField([](C c) { c.sampling.top_k = -2; }), "top_k");
  EXPECT_TRUE(Accept([](C c) { c.sampling.logit_bias = {{0, -100}, {299, 100}}; }).ok());
  for (const std::pair<TokenId, float>& bias :
       {std::pair<TokenId, float>{300, 1}, {-1, 1}, {5, 100.5F}, {5, -101}, {5, kNan}}) {
    EXPECT_EQ(RefusedField([&](C c) { c.sampling.logit_bias = {bias}; }), "logit_bias");
  }
  EXPECT_EQ(RefusedField([](C c) { c.sampling.logit_bias = {{5, 1}, {5, 2}}; }), "logit_bias");
  EXPECT_EQ(RefusedField([](C c) { c.sampling.logit_bias.resize(10'000); }), "logit_bias");
  for (const int32_t n : {0, -1, 9, 1'000'000}) {
    EXPECT_EQ(RefusedField([&](C c) { c.sequences = n; }), "n");
  }
  EXPECT_TRUE(Accept([](C c) { c.sequences = 8; }).ok());
  for (const int32_t priority : {-101, 1, std::numeric_limits<int32_t>::min()}) {
    EXPECT_EQ(RefusedField([&](C c) { c.priority = priority; }), "priority");
  }
  EXPECT_TRUE(Accept([](C c) { c.priority = -100; }).ok());
  EXPECT_EQ(RefusedField([](C c) {
              c.sequences = 8;
              c.prompts.resize(17, c.prompts[0]);
            }),
            "n");
  EXPECT_EQ(RefusedField([](C c) { c.prompts.resize(129, c.prompts[0]); }), "prompt");
  EXPECT_EQ(RefusedField([](C c) { c.prompts.clear(); }), "prompt");
  for (const TokenId id : {300, -1, std::numeric_limits<TokenId>::max()}) {
    EXPECT_EQ(RefusedField([&](C c) { c.stop.token_ids = {id}; }), "stop_token_ids");
  }
  EXPECT_EQ(RefusedField([](C c) { c.stop.token_ids.resize(129); }), "stop_token_ids");
  EXPECT_EQ(RefusedField([](C c) { c.stop.strings = {"a", ""}; }), "stop");
  EXPECT_EQ(RefusedField([](C c) { c.stop.strings.resize(17, "a"); }), "stop");
  EXPECT_TRUE(Accept([](C c) { c.stop.strings.resize(16, "a"); }).ok());
  EXPECT_EQ(RefusedField([](C c) { c.stop.strings = {std::string(1'000'000, 'a')}; }), "stop");
  EXPECT_EQ(RefusedField([](C c) { c.tokens_max = 0; }), "max_tokens");
  EXPECT_EQ(RefusedField([](C c) { c.tokens_max = -1; }), "max_tokens");
  EXPECT_EQ(RefusedField([](C c) {
              c.tokens_max = -1;
              c.echo = true;
            }),
            "max_tokens");
  EXPECT_EQ(RefusedField([](C c) { c.sampling.tokens_min = -1; }), "min_tokens");
  EXPECT_EQ(RefusedField([](C c) {
              c.sampling.tokens_min = 6;
              c.tokens_max = 5;
            }),
            "min_tokens");
  EXPECT_TRUE(Accept([](C c) { c.sampling.tokens_min = 6; }).ok());
  EXPECT_TRUE(Accept([](C c) { c.sampling.logprobs = 20; }).ok());
  EXPECT_EQ(RefusedField([](C c) { c.sampling.logprobs = 21; }), "logprobs");
  EXPECT_EQ(RefusedField([](C c) { c.sampling.logprobs = -1; }), "logprobs");
}

TEST(CallCheck, PromptIds) {
  EXPECT_TRUE(CheckPromptIds(std::vector<TokenId>{0, 299}, "prompt", kEngine).ok());
  for (const std::vector<TokenId>& ids : {std::vector<TokenId>{}, {-1}, {300}, {1, 1 << 30}}) {
    EXPECT_EQ(FieldOf(CheckPromptIds(ids, "prompt", kEngine)), "prompt");
  }
}

}  // namespace
}  // namespace polysil

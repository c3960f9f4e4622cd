#include "polysil/core/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace polysil {
namespace {

constexpr RequestLimits kLimits = {
    .vocab_size = 100, .context_tokens_max = 32, .kv_tokens_max = 24, .sequences_max = 4};

Request Good() {
  return Request{.prompt = {1, 2, 3}, .sampling = {.tokens_max = 8}};
}

struct Case {
  std::string says;  // part of the message; empty: accepted
  std::function<void(Request&)> change;
};

TEST(ValidateRequest, NamesTheFieldAndTheValue) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<Case> cases = {
      {"", [](Request&) {}},
      {"prompt has no token", [](Request& r) { r.prompt.clear(); }},
      {"prompt token 1 is 100, the vocabulary has 100", [](Request& r) { r.prompt[1] = 100; }},
      {"prompt token 2 is -1", [](Request& r) { r.prompt[2] = -1; }},
      {"", [](Request& r) { r.prompt.assign(24, 1); }},
      {"prompt has 25 tokens, the KV pool holds 24", [](Request& r) { r.prompt.assign(25, 1); }},
      {"prompt has 32 tokens, the model accepts 31", [](Request& r) { r.prompt.assign(32, 1); }},
      {"temperature is 2.5", [](Request& r) { r.sampling.temperature = 2.5F; }},
      {"temperature is -0.1", [](Request& r) { r.sampling.temperature = -0.1F; }},
      {"temperature is nan", [=](Request& r) { r.sampling.temperature = nan; }},
      {"top_p is 0", [](Request& r) { r.sampling.top_p = 0.0F; }},
      {"top_p is 1.5", [](Request& r) { r.sampling.top_p = 1.5F; }},
      {"top_p is nan", [=](Request& r) { r.sampling.top_p = nan; }},
      {"top_k is -1", [](Request& r) { r.sampling.top_k = -1; }},
      {"min_p is 1.1", [](Request& r) { r.sampling.min_p = 1.1F; }},
      {"min_p is nan", [=](Request& r) { r.sampling.min_p = nan; }},
      {"repetition_penalty is 0", [](Request& r) { r.sampling.repetition_penalty = 0.0F; }},
      {"repetition_penalty is inf", [=](Request& r) { r.sampling.repetition_penalty = inf; }},
      {"presence_penalty is 2.1", [](Request& r) { r.sampling.presence_penalty = 2.1F; }},
      {"frequency_penalty is -3", [](Request& r) { r.sampling.frequency_penalty = -3.0F; }},
      {"",
       [](Request& r) {
         r.sampling.logit_bias = {{0, -100.0F}, {99, 100.0F}};
       }},
      {"logit_bias names token 100",
       [](Request& r) {
         r.sampling.logit_bias = {{100, 1.0F}};
       }},
      {"logit_bias names token -1",
       [](Request& r) {
         r.sampling.logit_bias = {{-1, 1.0F}};
       }},
      {"logit_bias names token 5 after 5",
       [](Request& r) {
         r.sampling.logit_bias = {{5, 1.0F}, {5, 1.0F}};
       }},
      {"logit_bias of token 5 is 101",
       [](Request& r) {
         r.sampling.logit_bias = {{5, 101.0F}};
       }},
      {"logit_bias of token 5 is nan",
       [=](Request& r) {
         r.sampling.logit_bias = {{5, nan}};
       }},
      {"tokens_max is 0", [](Request& r) { r.sampling.tokens_max = 0; }},
      {"", [](Request& r) { r.sampling.tokens_max = std::numeric_limits<int32_t>::max(); }},
      {"tokens_min is -1", [](Request& r) { r.sampling.tokens_min = -1; }},
      {"tokens_min is 9, must lie between 0 and tokens_max 8",
       [](Request& r) { r.sampling.tokens_min = 9; }},
      {"", [](Request& r) { r.sampling.logprobs = 20; }},
      {"logprobs is 21", [](Request& r) { r.sampling.logprobs = 21; }},
      {"logprobs is -1", [](Request& r) { r.sampling.logprobs = -1; }},
      {"prompt_logprobs is 21", [](Request& r) { r.sampling.prompt_logprobs = 21; }},
      {"end_token_ids holds 100",
       [](Request& r) {
         r.end_token_ids = {3, 100};
       }},
      {"end_token_ids holds -1", [](Request& r) { r.end_token_ids = {-1}; }},
      {"end_token_ids holds 3 after 4",
       [](Request& r) {
         r.end_token_ids = {4, 3};
       }},
      {"sequences (n) is 0", [](Request& r) { r.sequences = 0; }},
      {"sequences (n) is 5", [](Request& r) { r.sequences = 5; }},
      {"deadline_ns is -1", [](Request& r) { r.deadline_ns = -1; }},
      {"", [](Request& r) { r.cache_salt.assign(1024, 's'); }},
      {"cache_salt has 1025 bytes", [](Request& r) { r.cache_salt.assign(1025, 's'); }},
  };
  for (const Case& each : cases) {
    Request request = Good();
    each.change(request);
    const Status status = Validate(request, kLimits);
    if (each.says.empty()) {
      EXPECT_TRUE(status.ok()) << Message(status);
    } else {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << each.says;
      EXPECT_NE(Message(status).find(each.says), std::string::npos)
          << "'" << Message(status) << "' does not say '" << each.says << "'";
    }
  }
}

}  // namespace
}  // namespace polysil

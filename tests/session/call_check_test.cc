#include "session/call_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
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

// JSN-04, CHT-02, CHT-05, CHT-09, LEN-07.
TEST(CallCheck, Messages) {
  struct Case {
    std::string chat;   // an object with messages and perhaps tools, kwargs
    std::string field;  // empty: accepted
  };
  const std::vector<Case> cases = {
      {R"({"messages":[{"role":"user","content":"hi"}]})", ""},
      {R"({"messages":[{"role":"user","content":""}]})", ""},
      {R"({"messages":[{"role":"developer","content":"hi"}]})", ""},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},
                                                 {"type":"text","text":"b"}]}]})",
       ""},
      {R"({"messages":[{"role":"assistant"}]})", ""},
      {R"({"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1",
          "type":"function","function":{"name":"f","arguments":"{}"}}]}]})",
       ""},
      {R"({"messages":[{"role":"tool","content":"4","tool_call_id":"1"}]})", ""},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[null]})", "messages[0]"},
      {R"({"messages":[{"role":"user","content":"hi"},{"content":"x"}]})", "messages[1].role"},
      {R"({"messages":[{"role":"assistent","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"User","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":5,"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":7}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":{"text":"x"}}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[]}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[null]}]})", "messages[0].content[0]"},
      {R"({"messages":[{"role":"user","content":[{"text":"x"}]}]})", "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0].type"},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":{"value":"x"}}]}]})",
       "messages[0].content[0].text"},
      {R"({"messages":[{"role":"user","content":"x","name":5}]})", "messages[0].name"},
      {R"({"messages":[{"role":"user","content":"x","tool_calls":[]}]})", "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":{}}]})", "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
       "messages[0].tool_calls[0].function"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":1}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":{}})", "tools"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":["f"]})", "tools[0]"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"code"}]})",
       "tools[0].type"},
      {R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function"}]})",
       "tools[0].function.name"},
      {R"({"messages":[{"role":"user","content":"x"}],"kwargs":{"chat_template":"x"}})",
       "chat_template_kwargs.chat_template"},
      {R"({"messages":[{"role":"user","content":"x"}],"kwargs":{"messages":[]}})",
       "chat_template_kwargs.messages"},
      {R"({"messages":[{"role":"user","content":"x"}],"kwargs":{"enable_thinking":false}})", ""},
  };
  for (const Case& test : cases) {
    const boost::json::object object = boost::json::parse(test.chat).as_object();
    ChatInput chat;
    chat.messages = object.at("messages").as_array();
    if (object.contains("tools")) chat.tools = object.at("tools");
    if (object.contains("kwargs")) chat.kwargs = object.at("kwargs").as_object();
    const Status status = CheckChat(chat);
    EXPECT_EQ(FieldOf(status), test.field) << test.chat;
    EXPECT_EQ(status.ok(), test.field.empty()) << test.chat;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace polysil

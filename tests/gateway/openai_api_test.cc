// The OpenAI endpoints over loopback: shapes, fields, refusals, streams. Names of cases are those
// of the field-case catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <set>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

TEST(OpenAiApi, ChatAnswer) {
  FakeEngineOptions options{.script = Say("Hello."), .prompt_tokens_cached = 3};
  GatewayRig rig(options);
  const HttpAnswer answer = rig.Post(kChat, Chat(R"("model":"test-model")"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const boost::json::object body = answer.Json().as_object();
  EXPECT_EQ(Str(body.at("object")), "chat.completion");
  EXPECT_EQ(Str(body.at("model")), "test-model");
  EXPECT_TRUE(Str(body.at("id")).starts_with("chatcmpl-"));
  EXPECT_GT(body.at("created").as_int64(), 1'600'000'000);
  const boost::json::object choice = body.at("choices").as_array().at(0).as_object();
  EXPECT_EQ(Str(choice.at("message").at("role")), "assistant");
  EXPECT_EQ(Str(choice.at("message").at("content")), "Hello.");
  EXPECT_EQ(Str(choice.at("finish_reason")), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  // <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n
  EXPECT_EQ(boost::json::serialize(body.at("usage")),
            R"({"prompt_tokens":21,"completion_tokens":7,"total_tokens":28,)"
            R"("prompt_tokens_details":{"cached_tokens":3}})");
}

TEST(OpenAiApi, CompletionAnswer) {
  GatewayRig rig;
  const HttpAnswer answer = rig.Post(kCompletions, Completion());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const boost::json::object body = answer.Json().as_object();
  EXPECT_EQ(Str(body.at("object")), "text_completion");
  EXPECT_TRUE(Str(body.at("id")).starts_with("cmpl-"));
  const boost::json::object choice = body.at("choices").as_array().at(0).as_object();
  EXPECT_EQ(Str(choice.at("text")), "Hello.");
  EXPECT_EQ(choice.at("index").as_int64(), 0);
  EXPECT_EQ(Str(choice.at("finish_reason")), "stop");
}

// LEN-02.
TEST(OpenAiApi, DefaultLengths) {
  GatewayRig rig({.script = [](const Request&, int32_t) { return std::vector<TokenId>{'a'}; }});
  const auto length = [&](const char* path, const std::string& body) {
    const HttpAnswer answer = rig.Post(path, body);
    EXPECT_EQ(Str(answer.Json().at("choices").at(0).at("finish_reason")), "length");
    return answer.Json().at("usage").at("completion_tokens").as_int64();
  };
  EXPECT_EQ(length(kCompletions, Completion()), 16);
  EXPECT_EQ(length(kCompletions, Completion(R"("max_tokens":null)")), 16);
  EXPECT_EQ(length(kCompletions, Completion(R"("max_tokens":3.0)")), 3);
  EXPECT_EQ(length(kCompletions, Completion(R"("max_tokens":100000)")), 254);
  EXPECT_EQ(length(kChat, Chat()), 256 - 21);
  EXPECT_EQ(length(kChat, Chat(R"("max_tokens":4)")), 4);
  EXPECT_EQ(length(kChat, Chat(R"("max_tokens":4,"max_completion_tokens":5)")), 5);
  EXPECT_EQ(length(kChat, Chat(R"("max_tokens":null,"max_completion_tokens":5)")), 5);
}

TEST(OpenAiApi, PromptForms) {
  GatewayRig rig({.script = Say("x")});
  const auto prompts = [&](const std::string& prompt) {
    const size_t before = rig.engine.submitted().size();
    const HttpAnswer answer = rig.Post(kCompletions, "{\"prompt\":" + prompt + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    std::vector<std::vector<TokenId>> ids;
    const std::vector<Request> submitted = rig.engine.submitted();
    for (size_t i = before; i < submitted.size(); ++i) ids.push_back(submitted[i].prompt);
    return ids;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_THAT(prompts(R"("ab")"), ElementsAre(Ids{'a', 'b'}));
  EXPECT_THAT(prompts(R"(["ab","c"])"), ElementsAre(Ids{'a', 'b'}, Ids{'c'}));
  EXPECT_THAT(prompts("[5,262]"), ElementsAre(Ids{5, 262}));
  EXPECT_THAT(prompts("[[5],[6,7]]"), ElementsAre(Ids{5}, Ids{6, 7}));
  EXPECT_THAT(prompts(R"("<|im_end|>")")[0].size(), 10u);
  EXPECT_THAT(rig.Post(kCompletions, R"({"prompt":"<|im_end|>","parse_special":true})").status,
              200);
  EXPECT_THAT(rig.engine.submitted().back().prompt, ElementsAre(kEnd));
}

TEST(OpenAiApi, ChoicesOfSeveralPromptsAndN) {
  GatewayRig rig({.script = [](const Request& request, int32_t index) {
    return std::vector<TokenId>{request.prompt[0], '0' + index, kEnd};
  }});
  const HttpAnswer answer = rig.Post(kCompletions, R"({"prompt":["a","b"],"n":2,"echo":true})");
  const boost::json::array choices = answer.Json().at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  const char* texts[] = {"aa0", "aa1", "bb0", "bb1"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Str(choices[i].at("text")), texts[i]);
    EXPECT_EQ(choices[i].at("index").as_int64(), static_cast<int64_t>(i));
  }
  EXPECT_EQ(answer.Json().at("usage").at("prompt_tokens").as_int64(), 2);
  EXPECT_EQ(answer.Json().at("usage").at("completion_tokens").as_int64(), 12);
}

TEST(OpenAiApi, SamplingFieldsReachTheEngine) {
  GatewayRig rig;
  const std::string fields =
      R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"repetition_penalty":1.5,
         "presence_penalty":-1,"frequency_penalty":2,"seed":-3,"min_tokens":2,"max_tokens":9,
         "logit_bias":{"7":-100,"5":1.5},"stop_token_ids":[9,8],"ignore_eos":true,"n":2,
         "user":"me","metadata":{"a":"b"},"foo":[{"bar":null}],"Max_Tokens":1)";
  for (const char* path : {kCompletions, kChat}) {
    const HttpAnswer answer =
        rig.Post(path, path == std::string(kChat) ? Chat(fields) : Completion(fields));
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Request request = rig.engine.submitted().back();
    const SamplingParams& sampling = request.sampling;
    EXPECT_EQ(sampling.temperature, 0.5F);
    EXPECT_EQ(sampling.top_p, 0.25F);
    EXPECT_EQ(sampling.top_k, 7);
    EXPECT_EQ(sampling.min_p, 0.125F);
    EXPECT_EQ(sampling.repetition_penalty, 1.5F);
    EXPECT_EQ(sampling.presence_penalty, -1.0F);
    EXPECT_EQ(sampling.frequency_penalty, 2.0F);
    EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
    EXPECT_EQ(sampling.tokens_min, 2);
    EXPECT_EQ(sampling.tokens_max, 9);
    EXPECT_THAT(sampling.logit_bias, ElementsAre(std::pair(5, 1.5F), std::pair(7, -100.0F)));
    EXPECT_THAT(request.end_token_ids, ElementsAre(8, 9));
    EXPECT_EQ(request.sequences, 2);
  }
}

// JSN-09, OPS-13.
TEST(OpenAiApi, Models) {
  GatewayRig rig;
  const boost::json::array data = rig.Get("/v1/models").Json().at("data").as_array();
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(Str(data[0].at("id")), "test-model");
  EXPECT_EQ(Str(data[0].at("object")), "model");
  EXPECT_EQ(data[0].at("max_model_len").as_int64(), 256);
  EXPECT_EQ(Str(rig.Get("/v1/models/test-model").Json().at("id")), "test-model");
  EXPECT_EQ(Str(rig.Get("/v1/models/org/alias").Json().at("id")), "org/alias");
  EXPECT_EQ(Str(rig.Get("/v1/models/org%2Falias").Json().at("id")), "org/alias");
  EXPECT_EQ(ErrorOf(rig.Get("/v1/models/gpt-4")).code, "model_not_found");
  for (const char* model : {"\"gpt-4\"", "\"\"", "\"../../etc/passwd\"", "\"a\\n[ERROR] fake\""}) {
    const std::string field = std::string("\"model\":") + model;
    for (const HttpAnswer& answer :
         {rig.Post(kChat, Chat(field)), rig.Post(kCompletions, Completion(field)),
          rig.Post("/tokenize", Completion(field)),
          rig.Post("/detokenize", "{\"tokens\":[1]," + field + "}")}) {
      const ErrorFacts error = ErrorOf(answer);
      EXPECT_EQ(error.status, 404);
      EXPECT_EQ(error.code, "model_not_found");
      EXPECT_EQ(error.param, "model");
    }
  }
  for (const char* field : {R"("model":"org/alias")", R"("model":null)"}) {
    EXPECT_EQ(rig.Post(kChat, Chat(field)).status, 200);
  }
  EXPECT_EQ(Str(rig.Post(kChat, Chat(R"("model":"org/alias")")).Json().at("model")), "org/alias");
}

TEST(OpenAiApi, ToolsGoIntoThePrompt) {
  GatewayRig rig;
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  const auto prompt_of = [&](const std::string& fields) {
    EXPECT_EQ(rig.Post(kChat, Chat(fields)).status, 200);
    const std::vector<TokenId> ids = rig.engine.submitted().back().prompt;
    return ByteTokenizer().Decode(ids, false);
  };
  EXPECT_THAT(prompt_of(tools), HasSubstr("[tools]"));
  EXPECT_THAT(prompt_of(tools + R"(,"tool_choice":"auto")"), HasSubstr("[tools]"));
  EXPECT_THAT(prompt_of(tools + R"(,"tool_choice":"none")"), ::testing::Not(HasSubstr("[tools]")));
  EXPECT_THAT(prompt_of(R"("add_generation_prompt":false)"),
              ::testing::Not(HasSubstr("assistant")));
}

// JSN-04: parts give the same prompt as the text.
TEST(OpenAiApi, ContentParts) {
  GatewayRig rig;
  rig.Post(kChat, Chat());
  rig.Post(kChat, R"({"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]})");
  const std::vector<Request> submitted = rig.engine.submitted();
  ASSERT_EQ(submitted.size(), 2u);
  EXPECT_EQ(submitted[0].prompt, submitted[1].prompt);
}

// LGP-01, LGP-03, LGP-08, LGP-10.
TEST(OpenAiApi, ChatLogprobs) {
  FakeEngineOptions options{.script = [](const Request&, int32_t) {
    return std::vector<TokenId>{'a', 0xF0, 0x9F, 0x98, 0x80, kEnd};
  }};
  options.top_logprob_last = -std::numeric_limits<float>::infinity();
  options.chosen_in_top = false;
  GatewayRig rig(options);
  HttpAnswer answer = rig.Post(kChat, Chat(R"("logprobs":true)"));
  boost::json::array content =
      answer.Json().at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 6u);
  EXPECT_TRUE(content[0].at("top_logprobs").as_array().empty());
  EXPECT_EQ(content[0].at("logprob").to_number<double>(), -0.25);
  EXPECT_EQ(Str(content[0].at("token")), "a");
  EXPECT_EQ(Str(content[1].at("token")), "\\xf0");
  EXPECT_EQ(boost::json::serialize(content[1].at("bytes")), "[240]");

  answer = rig.Post(kChat, Chat(R"("logprobs":true,"top_logprobs":3)"));
  content = answer.Json().at("choices").at(0).at("logprobs").at("content").as_array();
  std::string bytes;
  for (const boost::json::value& entry : content) {
    EXPECT_EQ(entry.at("top_logprobs").as_array().size(), 3u);
    for (const boost::json::value& byte : entry.at("bytes").as_array()) {
      bytes += static_cast<char>(byte.as_int64());
    }
  }
  EXPECT_EQ(bytes, "a\xF0\x9F\x98\x80<|im_end|>");
  EXPECT_EQ(Str(content[0].at("top_logprobs").at(0).at("token")), "b");
  EXPECT_EQ(content[0].at("top_logprobs").at(2).at("logprob").to_number<double>(), -9999);
}

// LGP-02, LGP-06, LGP-12, LEN-01.
TEST(OpenAiApi, CompletionLogprobs) {
  GatewayRig rig({.script = Say("b")});
  HttpAnswer answer = rig.Post(kCompletions, R"({"prompt":"h\u00e9","logprobs":0})");
  EXPECT_EQ(boost::json::serialize(answer.Json().at("choices").at(0).at("logprobs")),
            R"({"tokens":["b","<|im_end|>"],"token_logprobs":[-2.5E-1,-2.5E-1],)"
            R"("top_logprobs":[{"b":-2.5E-1},{"<|im_end|>":-2.5E-1}],"text_offset":[2,3]})");
  answer =
      rig.Post(kCompletions, R"({"prompt":"h\u00e9","logprobs":2,"echo":true,"max_tokens":0})");
  const boost::json::object choice = answer.Json().at("choices").at(0).as_object();
  EXPECT_EQ(Str(choice.at("text")), "h\xC3\xA9");
  EXPECT_EQ(Str(choice.at("finish_reason")), "length");
  EXPECT_EQ(answer.Json().at("usage").at("completion_tokens").as_int64(), 0);
  EXPECT_EQ(
      boost::json::serialize(choice.at("logprobs")),
      R"({"tokens":["h","bytes:\\xc3","bytes:\\xa9"],"token_logprobs":[null,-2.5E-1,-2.5E-1],)"
      R"("top_logprobs":[null,{"bytes:\\xc3":-2.5E-1,"bytes:\\xc4":-3},)"
      R"({"bytes:\\xa9":-2.5E-1,"bytes:\\xaa":-3}],"text_offset":[0,1,1]})");
  // Without logprobs the echo has none.
  answer = rig.Post(kCompletions, R"({"prompt":[72,262],"echo":true})");
  EXPECT_EQ(Str(answer.Json().at("choices").at(0).at("text")), "HHellob");
  EXPECT_TRUE(answer.Json().at("choices").at(0).at("logprobs").is_null());
}

TEST(OpenAiApi, TokenIds) {
  GatewayRig rig({.script = Say("b")});
  HttpAnswer answer = rig.Post(kCompletions, Completion(R"("return_token_ids":true)"));
  EXPECT_EQ(boost::json::serialize(answer.Json().at("choices").at(0).at("token_ids")), "[98,258]");
  EXPECT_EQ(boost::json::serialize(answer.Json().at("choices").at(0).at("prompt_token_ids")),
            "[104,105]");
  answer = rig.Post(kChat, Chat(R"("return_token_ids":true)"));
  EXPECT_EQ(boost::json::serialize(answer.Json().at("choices").at(0).at("token_ids")), "[98,258]");
  EXPECT_EQ(answer.Json().at("prompt_token_ids").as_array().size(), 21u);
  answer = rig.Post(kChat, Chat());
  EXPECT_FALSE(answer.Json().as_object().contains("prompt_token_ids"));
  EXPECT_FALSE(answer.Json().at("choices").at(0).as_object().contains("token_ids"));
}

TEST(OpenAiApi, StopStringsAndIncludeThem) {
  GatewayRig rig({.script = Say("one two three")});
  HttpAnswer answer = rig.Post(kCompletions, Completion(R"("stop":" two")"));
  EXPECT_EQ(Str(answer.Json().at("choices").at(0).at("text")), "one");
  answer = rig.Post(kCompletions,
                    Completion(R"("stop":["x"," two"],"include_stop_str_in_output":true)"));
  EXPECT_EQ(Str(answer.Json().at("choices").at(0).at("text")), "one two");
  EXPECT_EQ(Str(answer.Json().at("choices").at(0).at("finish_reason")), "stop");
  EXPECT_EQ(rig.Post(kCompletions, Completion(R"("stop":[])")).status, 200);
  EXPECT_EQ(rig.Post(kCompletions, Completion(R"("stop":null)")).status, 200);
}

// SCH-01: 429 with Retry-After, streamed or not; SSE-05.
TEST(OpenAiApi, QueueFull) {
  GatewayRig rig({.running_max = 1, .queue_max = 1, .script = Say("x")});
  rig.engine.AllowTokens(0);
  HttpClient first(rig.gateway->port());
  HttpClient second(rig.gateway->port());
  first.Post(kChat, Chat());
  second.Post(kChat, Chat());
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(2));
  for (const std::string stream : {"", R"("stream":true)"}) {
    const HttpAnswer answer = rig.Post(kChat, Chat(stream));
    EXPECT_EQ(answer.Header("retry-after"), "7");
    const ErrorFacts error = ErrorOf(answer);
    EXPECT_EQ(error.status, 429);
    EXPECT_EQ(error.type, "rate_limit_error");
    EXPECT_EQ(error.code, "overloaded");
  }
  EXPECT_EQ(rig.Get("/health").status, 200);  // OPS-04
  rig.engine.AllowTokens(100);
  EXPECT_EQ(first.Receive().status, 200);
  EXPECT_EQ(second.Receive().status, 200);
  EXPECT_EQ(rig.service->Stats().requests_refused, 2u);
}

// OPS-03, OPS-05, OPS-06.
TEST(OpenAiApi, HealthAndReadiness) {
  GatewayRig rig;
  EXPECT_EQ(rig.Get("/health").status, 200);
  EXPECT_EQ(rig.Get("/ready").status, 200);
  rig.engine.SetReadiness({.ready = false, .reason = "no step for 5 s"});
  EXPECT_EQ(rig.Get("/health").status, 200);
  EXPECT_THAT(ErrorOf(rig.Get("/ready")).message, HasSubstr("no step for 5 s"));
  EXPECT_EQ(rig.Get("/ready").status, 503);
  const HttpAnswer refused = rig.Post(kChat, Chat(R"("stream":true)"));
  EXPECT_EQ(ErrorOf(refused).status, 503);
  EXPECT_EQ(refused.Header("retry-after"), "7");
  EXPECT_EQ(rig.Get("/v1/models").status, 200);
}

// A drain that reaches its deadline ends streams with an error, not with a finish.
TEST(OpenAiApi, DrainDeadline) {
  GatewayRig rig({.script = Say("Hello")});
  rig.engine.AllowTokens(2);
  HttpClient stream(rig.gateway->port());
  stream.Post(kCompletions, Completion(R"("stream":true)"));
  stream.ReceiveHead();
  ASSERT_TRUE(stream.ReceiveChunk().has_value());
  HttpClient whole(rig.gateway->port());
  whole.Post(kCompletions, Completion());
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(2));
  rig.engine.Drain();
  EXPECT_EQ(ErrorOf(rig.Post(kChat, Chat())).status, 503);
  rig.engine.EndAll();
  std::string rest;
  while (const auto chunk = stream.ReceiveChunk()) {
    if (chunk->empty()) break;
    rest += *chunk;
  }
  EXPECT_THAT(rest, HasSubstr("shutting down"));
  EXPECT_THAT(rest, ::testing::Not(HasSubstr("[DONE]")));
  EXPECT_EQ(ErrorOf(whole.Receive()).status, 503);
}

TEST(OpenAiApi, VersionAndMetrics) {
  GatewayRig rig;
  EXPECT_EQ(rig.Get("/version").body, R"({"version":"1.2.3"})");
  rig.Post(kChat, Chat());
  rig.Post(kChat, "{");
  const HttpAnswer page = rig.Get("/metrics");
  EXPECT_THAT(page.Header("content-type"), HasSubstr("version=0.0.4"));
  EXPECT_THAT(page.body, HasSubstr("polysil_requests_total{outcome=\"stop\"} 1\n"));
  EXPECT_THAT(page.body, HasSubstr("polysil_requests_total{outcome=\"refused\"} 1\n"));
  EXPECT_THAT(page.body, HasSubstr("polysil_generation_tokens_total 7\n"));
}

TEST(OpenAiApi, TokenizeAndDetokenize) {
  GatewayRig rig;
  EXPECT_EQ(rig.Post("/tokenize", R"({"prompt":"hi","return_token_strs":true})").body,
            R"({"count":2,"max_model_len":256,"tokens":[104,105],"token_strs":["h","i"]})");
  EXPECT_EQ(rig.Post("/tokenize", R"({"prompt":""})").Json().at("count").as_int64(), 0);
  EXPECT_EQ(rig.Post("/tokenize", R"({"prompt":"<|im_end|>","parse_special":true})")
                .Json()
                .at("count")
                .as_int64(),
            1);
  EXPECT_EQ(rig.Post("/tokenize", Chat()).Json().at("count").as_int64(), 21);
  // Longer than the context: it is a question, not a request to run.
  EXPECT_EQ(rig.Post("/tokenize", "{\"prompt\":\"" + std::string(100'000, 'a') + "\"}")
                .Json()
                .at("count")
                .as_int64(),
            100'000);
  EXPECT_EQ(rig.Post("/detokenize", R"({"tokens":[262,263,258]})").body,
            R"({"prompt":"Hello world<|im_end|>"})");
  EXPECT_EQ(rig.Post("/detokenize", R"({"tokens":[262,258],"skip_special_tokens":true})").body,
            R"({"prompt":"Hello"})");
  for (const auto& [path, body, param] : std::vector<std::array<std::string, 3>>{
           {"/tokenize", "{}", "prompt"},
           {"/tokenize", R"({"prompt":5})", "prompt"},
           {"/tokenize", R"({"prompt":"a","messages":[{"role":"user","content":"x"}]})", "prompt"},
           {"/tokenize", R"({"messages":[]})", "messages"},
           {"/detokenize", "{}", "tokens"},
           {"/detokenize", R"({"tokens":"x"})", "tokens"},
           {"/detokenize", R"({"tokens":[300]})", "tokens"},
           {"/detokenize", R"({"tokens":[-1]})", "tokens"}}) {
    const ErrorFacts error = ErrorOf(rig.Post(path, body));
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, param) << body;
  }
}

}  // namespace
}  // namespace polysil

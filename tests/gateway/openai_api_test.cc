// The OpenAI endpoints over loopback: shapes, fields, refusals, streams. Names of cases are those
// of the field-case catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <set>

#include "gateway/gateway_rig.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChat[] = "/v1/chat/completions";
constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

std::string Str(const boost::json::value& value) {
  return std::string(value.as_string());
}

// {"messages":[user: hi], ...}
std::string Chat(const std::string& fields = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}
std::string Completion(const std::string& fields = "") {
  return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}

struct ErrorFacts {
  int status = 0;
  std::string message;
  std::string type;
  std::string param;  // "" for null
  std::string code;
};

ErrorFacts ErrorOf(const HttpAnswer& answer) {
  const boost::json::object error = answer.Json().as_object().at("error").as_object();
  const auto text = [&](const char* key) {
    return error.at(key).is_null() ? std::string() : Str(error.at(key));
  };
  EXPECT_EQ(answer.Header("content-type"), "application/json");
  return {answer.status, text("message"), text("type"), text("param"), text("code")};
}

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

struct Refusal {
  std::string fields;
  std::string param;
};

// SMP-03..SMP-11, STP-07, STP-11, LEN-04, LGP-01, LGP-04, SSE-02, JSN-05, JSN-08: both endpoints,
// whole and streamed: 400 that names the field, before any streamed byte (SSE-05).
TEST(OpenAiApi, FieldsThatAreRefused) {
  const std::vector<Refusal> both = {
      {R"("temperature":-0.1)", "temperature"},
      {R"("temperature":2.1)", "temperature"},
      {R"("temperature":"NaN")", "temperature"},
      {R"("temperature":1e300)", "temperature"},
      {R"("temperature":1e999)", "temperature"},
      {R"("temperature":[1])", "temperature"},
      {R"("top_p":0)", "top_p"},
      {R"("top_p":1.0001)", "top_p"},
      {R"("top_p":-0.1)", "top_p"},
      {R"("top_k":-2)", "top_k"},
      {R"("top_k":2147483648)", "top_k"},
      {R"("top_k":1.5)", "top_k"},
      {R"("min_p":1.1)", "min_p"},
      {R"("repetition_penalty":0)", "repetition_penalty"},
      {R"("repetition_penalty":1e-30)", "repetition_penalty"},
      {R"("presence_penalty":2.1)", "presence_penalty"},
      {R"("frequency_penalty":-2.1)", "frequency_penalty"},
      {R"("logit_bias":{"191222":-100})", "logit_bias"},
      {R"("logit_bias":{"300":1})", "logit_bias"},
      {R"("logit_bias":{"-1":1})", "logit_bias"},
      {R"("logit_bias":{"abc":1})", "logit_bias"},
      {R"("logit_bias":{"1.5":1})", "logit_bias"},
      {R"("logit_bias":{"":1})", "logit_bias"},
      {R"("logit_bias":{" 1":1})", "logit_bias"},
      {R"("logit_bias":{"+1":1})", "logit_bias"},
      {R"("logit_bias":{"99999999999":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"1":-101})", "logit_bias"},
      {R"("logit_bias":{"1":"5"})", "logit_bias"},
      {R"("logit_bias":{"1":null})", "logit_bias"},
      {R"("logit_bias":{"1":1e300})", "logit_bias"},
      {R"("logit_bias":{"1":1,"01":2})", "logit_bias"},
      {R"("logit_bias":[1])", "logit_bias"},
      {R"("seed":"x")", "seed"},
      {R"("seed":1.5)", "seed"},
      {R"("stop":"")", "stop"},
      {R"("stop":["a",""])", "stop"},
      {R"("stop":[1])", "stop"},
      {R"("stop":{})", "stop"},
      {R"("stop":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q"])", "stop"},
      {R"("stop_token_ids":[300])", "stop_token_ids"},
      {R"("stop_token_ids":[-1])", "stop_token_ids"},
      {R"("stop_token_ids":[2147483648])", "stop_token_ids"},
      {R"("stop_token_ids":5)", "stop_token_ids"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":-1)", "max_tokens"},
      {R"("max_tokens":"10")", "max_tokens"},
      {R"("max_tokens":1.5)", "max_tokens"},
      {R"("max_tokens":true)", "max_tokens"},
      {R"("max_tokens":[5])", "max_tokens"},
      {R"("min_tokens":-1)", "min_tokens"},
      {R"("min_tokens":9,"max_tokens":5)", "min_tokens"},
      {R"("n":0)", "n"},
      {R"("n":-1)", "n"},
      {R"("n":1000000)", "n"},
      {R"("n":"2")", "n"},
      {R"("ignore_eos":1)", "ignore_eos"},
      {R"("stream":"true")", "stream"},
      {R"("stream":1)", "stream"},
      {R"("stream":true,"stream_options":"x")", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
      {R"("stream":false,"stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":false,"stream_options":{})", "stream_options"},
      {R"("model":5)", "model"},
      {R"("user":5)", "user"},
      {R"("metadata":[])", "metadata"},
      {R"("return_token_ids":"x")", "return_token_ids"},
      {R"("skip_special_tokens":0)", "skip_special_tokens"},
      {R"("response_format":{"type":"json_schema","json_schema":{}})", "response_format"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("response_format":{})", "response_format"},
      {R"("response_format":"text")", "response_format"},
      {R"("guided_json":{"type":"object"})", "guided_json"},
      {R"("guided_regex":"a")", "guided_regex"},
      {R"("use_beam_search":true)", "use_beam_search"},
      {R"("prompt_logprobs":1)", "prompt_logprobs"},
      {R"("prompt_logprobs":-1)", "prompt_logprobs"},
      {R"("suffix":"x")", "suffix"},
      {R"("chat_template":"x")", "chat_template"},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens"},
      {R"("audio":{"voice":"x"})", "audio"}};
  const std::vector<Refusal> chat = {
      {R"("top_logprobs":5)", "top_logprobs"},
      {R"("logprobs":false,"top_logprobs":1)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":-1)", "top_logprobs"},
      {R"("logprobs":5)", "logprobs"},
      {R"("max_completion_tokens":0)", "max_completion_tokens"},
      {R"("max_completion_tokens":-5)", "max_completion_tokens"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("tool_choice":"x")", "tool_choice"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
      {R"("tools":"x")", "tools"},
      {R"("tools":["x"])", "tools[0]"},
      {R"("echo":true)", "echo"},
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("function_call":"auto")", "function_call"},
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("chat_template_kwargs":{"chat_template":"x"})", "chat_template_kwargs.chat_template"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"}};
  const std::vector<Refusal> completion = {{R"("logprobs":21)", "logprobs"},
                                           {R"("logprobs":-1)", "logprobs"},
                                           {R"("logprobs":100000)", "logprobs"},
                                           {R"("logprobs":true)", "logprobs"},
                                           {R"("best_of":2)", "best_of"},
                                           {R"("best_of":2,"n":3)", "best_of"},
                                           {R"("best_of":0)", "best_of"},
                                           {R"("best_of":1000000)", "best_of"},
                                           {R"("echo":1)", "echo"},
                                           {R"("add_special_tokens":"x")", "add_special_tokens"}};
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  const auto check = [&](const char* path, const std::string& body, const Refusal& refusal) {
    ASSERT_TRUE(client.Post(path, body)) << body;
    const HttpAnswer answer = client.Receive();
    const ErrorFacts error = ErrorOf(answer);
    EXPECT_EQ(error.status, 400) << body;
    EXPECT_EQ(error.param, refusal.param) << body << answer.body;
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_FALSE(error.message.empty());
  };
  for (const std::string stream : {"", R"(,"stream":true)"}) {
    const auto with = [&](const Refusal& refusal) {
      return refusal.fields.find("\"stream\"") == std::string::npos ? refusal.fields + stream
                                                                    : refusal.fields;
    };
    for (const Refusal& refusal : both) {
      check(kCompletions, Completion(with(refusal)), refusal);
      check(kChat, Chat(with(refusal)), refusal);
    }
    for (const Refusal& refusal : chat) check(kChat, Chat(with(refusal)), refusal);
    for (const Refusal& refusal : completion)
      check(kCompletions, Completion(with(refusal)), refusal);
  }
  EXPECT_TRUE(rig.engine.submitted().empty());
  EXPECT_EQ(rig.engine.Stats().requests_refused, 0u);
  EXPECT_EQ(rig.service->Stats().requests_refused,
            2 * (2 * both.size() + chat.size() + completion.size()));
}

// JSN-05: every field with every type: 200 or a 400 that names it, never 500.
TEST(OpenAiApi, EveryFieldWithEveryType) {
  const char* fields[] = {"model",
                          "temperature",
                          "top_p",
                          "top_k",
                          "min_p",
                          "repetition_penalty",
                          "presence_penalty",
                          "frequency_penalty",
                          "logit_bias",
                          "seed",
                          "stop",
                          "stop_token_ids",
                          "max_tokens",
                          "max_completion_tokens",
                          "min_tokens",
                          "ignore_eos",
                          "n",
                          "best_of",
                          "logprobs",
                          "top_logprobs",
                          "echo",
                          "return_token_ids",
                          "stream",
                          "stream_options",
                          "user",
                          "metadata",
                          "response_format",
                          "tools",
                          "tool_choice",
                          "parallel_tool_calls",
                          "chat_template_kwargs",
                          "add_generation_prompt",
                          "continue_final_message",
                          "include_stop_str_in_output",
                          "skip_special_tokens",
                          "add_special_tokens",
                          "parse_special",
                          "suffix",
                          "functions",
                          "function_call",
                          "modalities",
                          "audio",
                          "store",
                          "service_tier",
                          "reasoning_effort",
                          "prompt",
                          "messages"};
  const char* values[] = {"\"x\"",
                          "5",
                          "1.5",
                          "true",
                          "false",
                          "null",
                          "[]",
                          "[1]",
                          "[\"a\"]",
                          "[[1]]",
                          "{}",
                          "-1",
                          "0",
                          "{\"a\":{}}",
                          "[{}]",
                          "{\"type\":\"text\"}",
                          "99999999999999999999"};
  GatewayRig rig({.script = Say("ok")});
  HttpClient client(rig.gateway->port());
  int accepted = 0;
  for (const char* path : {kCompletions, kChat}) {
    const bool chat = path == std::string(kChat);
    for (const std::string field : fields) {
      for (const char* value : values) {
        // The last of equal keys counts, so that prompt and messages are replaced, too.
        const std::string pair = "\"" + field + "\":" + value;
        ASSERT_TRUE(client.Post(path, chat ? Chat(pair) : Completion(pair)));
        const HttpAnswer answer = client.Receive();
        ASSERT_TRUE(answer.complete) << pair;
        if (answer.status == 200) {
          ++accepted;
          continue;
        }
        const ErrorFacts error = ErrorOf(answer);
        if (field == "model" && error.status == 404) continue;
        EXPECT_EQ(error.status, 400) << path << pair << answer.body;
        EXPECT_TRUE(error.param.starts_with(field)) << path << pair << answer.body;
      }
    }
  }
  EXPECT_GT(accepted, 300);
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

// LEN-06, LEN-07, LEN-08, JSN-07, LEN-13.
TEST(OpenAiApi, PromptsThatAreRefused) {
  GatewayRig rig;
  const std::string long_text(300, 'a');
  for (const std::string& prompt : {std::string("\"\""),
                                    std::string("[]"),
                                    std::string("[[]]"),
                                    std::string("[\"hi\",\"\"]"),
                                    std::string("[1,\"a\"]"),
                                    std::string("[\"a\",1]"),
                                    std::string("[[1,2],\"a\"]"),
                                    std::string("[[1],[]]"),
                                    std::string("[-1]"),
                                    std::string("[300]"),
                                    std::string("[1.5]"),
                                    std::string("[5279552648203111001]"),
                                    std::string("[null]"),
                                    std::string("[{}]"),
                                    std::string("null"),
                                    std::string("5"),
                                    std::string("{}"),
                                    "\"" + long_text + "\"",
                                    "[\"hi\",\"" + long_text + "\"]",
                                    "[\"" + long_text + "\",\"hi\"]"}) {
    for (const char* stream : {"false", "true"}) {
      const ErrorFacts error =
          ErrorOf(rig.Post(kCompletions, "{\"prompt\":" + prompt + ",\"stream\":" + stream + "}"));
      EXPECT_EQ(error.status, 400) << prompt;
      EXPECT_EQ(error.param, "prompt") << prompt;
    }
  }
  EXPECT_EQ(ErrorOf(rig.Post(kCompletions, "{}")).param, "prompt");
  EXPECT_EQ(ErrorOf(rig.Post(kCompletions, "{\"prompt\":\"" + long_text + "\"}")).code,
            "context_length_exceeded");
  EXPECT_EQ(ErrorOf(rig.Post(kChat, "{}")).param, "messages");
  EXPECT_EQ(ErrorOf(rig.Post(kChat, R"({"messages":[]})")).param, "messages");
  const ErrorFacts error =
      ErrorOf(rig.Post(kChat, R"({"messages":[{"role":"user","content":")" + long_text + "\"}]}"));
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "messages");
  // CHT-01.
  EXPECT_THAT(ErrorOf(rig.Post(kChat, R"({"messages":[{"role":"tool","content":"4"}]})")).message,
              HasSubstr("must not start with a tool"));
  EXPECT_TRUE(rig.engine.submitted().empty());
}

// JSN-04, CHT-02, CHT-05, CHT-09, LEN-07: what of a conversation is refused, and what is not.
TEST(OpenAiApi, Conversations) {
  struct Case {
    std::string body;
    std::string param;  // empty: accepted
  };
  const auto user = [](const std::string& fields) {
    return R"({"messages":[{"role":"user",)" + fields + "}]}";
  };
  const std::string hi = R"("messages":[{"role":"user","content":"hi"}])";
  const std::vector<Case> cases = {
      {user(R"("content":"")"), ""},
      {R"({"messages":[{"role":"developer","content":"hi"}]})", ""},
      {user(R"("content":[{"type":"text","text":"a"},{"type":"text","text":"b"}])"), ""},
      {R"({"messages":[{"role":"assistant"}]})", ""},
      {R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,
          "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
          {"role":"tool","content":"4","tool_call_id":"1"}]})",
       ""},
      {"{" + hi + R"(,"chat_template_kwargs":{"enable_thinking":false}})", ""},
      {R"({"messages":["hi"]})", "messages[0]"},
      {R"({"messages":[null]})", "messages[0]"},
      {R"({"messages":[{"role":"user","content":"hi"},{"content":"x"}]})", "messages[1].role"},
      {R"({"messages":[{"role":"assistent","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"User","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":5,"content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {user(R"("content":null)"), "messages[0].content"},
      {user(R"("content":7)"), "messages[0].content"},
      {user(R"("content":{"text":"x"})"), "messages[0].content"},
      {user(R"("content":[null])"), "messages[0].content[0]"},
      {user(R"("content":[{"text":"x"}])"), "messages[0].content[0].type"},
      {user(R"("content":[{"type":"image_url"}])"), "messages[0].content[0].type"},
      {user(R"("content":[{"type":"text","text":{"value":"x"}}])"), "messages[0].content[0].text"},
      {user(R"("content":"x","tool_calls":[{}])"), "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":{}}]})", "messages[0].tool_calls"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{}]}]})",
       "messages[0].tool_calls[0].function"},
      {"{" + hi + R"(,"tools":["f"]})", "tools[0]"},
      {"{" + hi + R"(,"tools":[{"type":"code"}]})", "tools[0].type"},
      {"{" + hi + R"(,"chat_template_kwargs":{"messages":[]}})", "chat_template_kwargs.messages"}};
  GatewayRig rig;
  for (const Case& test : cases) {
    const HttpAnswer answer = rig.Post(kChat, test.body);
    if (test.param.empty()) {
      EXPECT_EQ(answer.status, 200) << test.body << answer.body;
      continue;
    }
    const ErrorFacts error = ErrorOf(answer);
    EXPECT_EQ(error.status, 400) << test.body;
    EXPECT_EQ(error.param, test.param) << test.body << error.message;
  }
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

// SSE-01, SSE-04, SSE-08, SSE-09.
TEST(OpenAiApi, ChatStream) {
  GatewayRig rig({.script = [](const Request&, int32_t) {
    return std::vector<TokenId>{0xC4, 0x8F, 'a', kEnd};
  }});
  const HttpAnswer answer =
      rig.Post(kChat, Chat(R"("stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.Header("content-type"), "text/event-stream");
  const EventStream stream(answer.body);
  EXPECT_TRUE(stream.well_formed) << answer.body;
  EXPECT_TRUE(stream.done);
  ASSERT_EQ(stream.events.size(), 5u) << answer.body;
  std::set<std::string> heads;
  for (const boost::json::object& event : stream.events) {
    EXPECT_EQ(Str(event.at("object")), "chat.completion.chunk");
    heads.insert(Str(event.at("id")) + Str(event.at("model")) +
                 boost::json::serialize(event.at("created")));
  }
  EXPECT_EQ(heads.size(), 1u);
  const auto choice = [&](size_t i) {
    return boost::json::serialize(stream.events[i].at("choices"));
  };
  EXPECT_EQ(choice(0), R"([{"index":0,"delta":{"role":"assistant","content":""},)"
                       R"("logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(choice(1),
            "[{\"index\":0,\"delta\":{\"content\":\"\xC4\x8F\"},"
            "\"logprobs\":null,\"finish_reason\":null}]");
  EXPECT_EQ(choice(2),
            R"([{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(choice(3), R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(choice(4), "[]");
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(stream.events[i].at("usage").is_null());
  EXPECT_EQ(stream.events[4].at("usage").at("completion_tokens").as_int64(), 4);
}

TEST(OpenAiApi, CompletionStream) {
  GatewayRig rig({.script = Say("ab")});
  const HttpAnswer answer =
      rig.Post(kCompletions,
               Completion(R"("stream":true,"echo":true,"logprobs":0,"return_token_ids":true)"));
  const EventStream stream(answer.body);
  ASSERT_TRUE(stream.well_formed && stream.done) << answer.body;
  std::string text;
  std::vector<int64_t> offsets;
  std::vector<int64_t> ids;
  int finishes = 0;
  for (const boost::json::object& event : stream.events) {
    EXPECT_EQ(Str(event.at("object")), "text_completion");
    EXPECT_FALSE(event.contains("usage"));  // SSE-02
    const boost::json::object choice = event.at("choices").as_array().at(0).as_object();
    EXPECT_EQ(finishes, 0);
    text += Str(choice.at("text"));
    finishes += choice.at("finish_reason").is_null() ? 0 : 1;
    if (!choice.at("logprobs").is_null()) {
      for (const auto& offset : choice.at("logprobs").at("text_offset").as_array()) {
        offsets.push_back(offset.as_int64());
      }
    }
    if (choice.contains("token_ids")) {
      for (const auto& id : choice.at("token_ids").as_array()) ids.push_back(id.as_int64());
    }
  }
  EXPECT_EQ(text, "hiab");
  EXPECT_THAT(offsets, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(ids, ElementsAre('a', 'b', kEnd));
  EXPECT_EQ(finishes, 1);
  EXPECT_EQ(boost::json::serialize(stream.events[0].at("choices").at(0).at("prompt_token_ids")),
            "[104,105]");
}

// SSE-03, LGP-13: one usage; each choice has its own lists and one finish.
TEST(OpenAiApi, StreamOfSeveralChoices) {
  GatewayRig rig({.script = [](const Request&, int32_t index) {
    std::vector<TokenId> ids(static_cast<size_t>(index + 1), 'a' + index);
    ids.push_back(kEnd);
    return ids;
  }});
  const std::string fields = R"("n":3,"logprobs":true)";
  const HttpAnswer answer =
      rig.Post(kChat, Chat(fields + R"(,"stream":true,"stream_options":{"include_usage":true})"));
  const EventStream stream(answer.body);
  ASSERT_TRUE(stream.well_formed && stream.done);
  std::map<int64_t, std::string> texts;
  std::map<int64_t, size_t> logprobs;
  std::map<int64_t, int> roles;
  std::map<int64_t, int> finishes;
  int usages = 0;
  for (const boost::json::object& event : stream.events) {
    usages += event.at("usage").is_null() ? 0 : 1;
    for (const boost::json::value& value : event.at("choices").as_array()) {
      const boost::json::object choice = value.as_object();
      const int64_t index = choice.at("index").as_int64();
      const boost::json::object delta = choice.at("delta").as_object();
      if (delta.contains("role")) ++roles[index];
      EXPECT_EQ(roles[index], 1);  // it comes first
      if (delta.contains("content")) texts[index] += Str(delta.at("content"));
      if (!choice.at("logprobs").is_null()) {
        logprobs[index] += choice.at("logprobs").at("content").as_array().size();
      }
      finishes[index] += choice.at("finish_reason").is_null() ? 0 : 1;
    }
  }
  EXPECT_EQ(usages, 1);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(texts[i], std::string(static_cast<size_t>(i + 1), static_cast<char>('a' + i)));
    EXPECT_EQ(logprobs[i], static_cast<size_t>(i + 2));
    EXPECT_EQ(finishes[i], 1);
  }
  const boost::json::value whole = rig.Post(kChat, Chat(fields)).Json();
  EXPECT_EQ(boost::json::serialize(stream.events.back().at("usage")),
            boost::json::serialize(whole.at("usage")));
}

// SSE-07, UTF-04: what a model says cannot break the framing.
TEST(OpenAiApi, HostileTextInAStream) {
  const std::string said = "\n\n\r\n\xE2\x80\xA8 data: [DONE]\n\n \x01\"\\ \xC2\x85 end";
  GatewayRig rig({.script = Say(said)});
  const HttpAnswer answer = rig.Post(kChat, Chat(R"("stream":true)"));
  const EventStream stream(answer.body);
  EXPECT_TRUE(stream.well_formed && stream.done) << answer.body;
  std::string text;
  for (const boost::json::object& event : stream.events) {
    const boost::json::value delta = event.at("choices").as_array().at(0).at("delta");
    if (delta.as_object().contains("content")) text += Str(delta.at("content"));
  }
  EXPECT_EQ(text, said);
}

// UTF-03, UTF-04: an unfinished or impossible character is U+FFFD, the same in both modes.
TEST(OpenAiApi, BrokenCharacters) {
  GatewayRig rig({.script = [](const Request&, int32_t) {
    return std::vector<TokenId>{0x80, '\'', 0xE6};
  }});
  for (const char* path : {kCompletions, kChat}) {
    const bool chat = path == std::string(kChat);
    const std::string fields = R"("max_tokens":3)";
    const HttpAnswer whole = rig.Post(path, chat ? Chat(fields) : Completion(fields));
    const boost::json::value choice = whole.Json().at("choices").at(0);
    const std::string text = Str(chat ? choice.at("message").at("content") : choice.at("text"));
    EXPECT_EQ(text, "\xEF\xBF\xBD'\xEF\xBF\xBD");
    const std::string streamed = fields + R"(,"stream":true)";
    const EventStream stream(rig.Post(path, chat ? Chat(streamed) : Completion(streamed)).body);
    ASSERT_TRUE(stream.well_formed && stream.done);
    std::string joined;
    for (const boost::json::object& event : stream.events) {
      const boost::json::value part = event.at("choices").as_array().at(0);
      if (!chat) {
        joined += Str(part.at("text"));
      } else if (part.at("delta").as_object().contains("content")) {
        joined += Str(part.at("delta").at("content"));
      }
    }
    EXPECT_EQ(joined, text);
  }
}

// SSE-05: what fails before the first token has its true status; SSE-06: what fails after is an
// error event and no end mark.
TEST(OpenAiApi, FailuresBeforeAndAfterTheFirstToken) {
  for (const int64_t tokens : {0, 2}) {
    FakeEngineOptions options{.script = Say("Hello"), .fail_after_tokens = tokens};
    GatewayRig rig(options);
    for (const char* path : {kCompletions, kChat}) {
      const bool chat = path == std::string(kChat);
      ErrorFacts error = ErrorOf(rig.Post(path, chat ? Chat() : Completion()));
      EXPECT_EQ(error.status, 500);
      EXPECT_EQ(error.type, "server_error");
      const std::string stream_field = R"("stream":true)";
      const HttpAnswer answer =
          rig.Post(path, chat ? Chat(stream_field) : Completion(stream_field));
      if (tokens == 0) {
        EXPECT_EQ(ErrorOf(answer).status, 500);
        continue;
      }
      EXPECT_EQ(answer.status, 200);
      EXPECT_TRUE(answer.complete);
      const EventStream stream(answer.body);
      EXPECT_TRUE(stream.well_formed);
      EXPECT_FALSE(stream.done);
      EXPECT_THAT(Str(stream.events.back().at("error").at("message")), HasSubstr("not finite"));
      for (size_t i = 0; i + 1 < stream.events.size(); ++i) {
        EXPECT_TRUE(stream.events[i].at("choices").as_array().at(0).at("finish_reason").is_null());
      }
    }
  }
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

// JSN-01, UTF-05, JSN-10: a bad body is 400 with a place, with any headers.
TEST(OpenAiApi, MalformedBodies) {
  GatewayRig rig;
  for (const char* headers : {"", "X-Request-Id: abc\r\n", "traceparent: 00-1-2-00\r\n"}) {
    for (const char* path : {kCompletions, kChat, "/tokenize", "/detokenize"}) {
      for (const std::string& body :
           {std::string("{:"), std::string(), std::string("[]"), std::string("null"),
            std::string("{\"prompt\":\"\xFF\",\"temperature\":\"abc\"}"),
            std::string(100'000, '[')}) {
        const ErrorFacts error = ErrorOf(rig.Post(path, body, headers));
        EXPECT_EQ(error.status, 400);
        EXPECT_EQ(error.param, "");
        EXPECT_THAT(error.message, HasSubstr("body"));
      }
    }
  }
  // The content type is not looked at.
  EXPECT_EQ(rig.Post(kChat, Chat(), "Content-Type: text/plain\r\n").status, 200);
}

}  // namespace
}  // namespace polysil

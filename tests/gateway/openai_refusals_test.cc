// What the OpenAI endpoints refuse: each is 4xx with the field's name, before any streamed byte.
// Names of cases are those of the field-case catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  std::string fields;
  std::string param;
};

// SMP-03..SMP-11, STP-07, STP-11, LEN-04, LGP-01, LGP-04, SSE-02, JSN-05, JSN-08: both endpoints,
// whole and streamed: 400 that names the field, before any streamed byte (SSE-05).
TEST(OpenAiRefusals, FieldsThatAreRefused) {
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
      {R"("top_k":18446744073709551615)", "top_k"},
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
      {R"("n":2147483648)", "n"},
      {R"("n":4294967297)", "n"},
      {R"("n":9223372036854775807)", "n"},
      {R"("priority":-4294967296)", "priority"},
      {R"("n":"2")", "n"},
      {R"("priority":1)", "priority"},
      {R"("priority":-101)", "priority"},
      {R"("priority":-0.5)", "priority"},
      {R"("priority":"high")", "priority"},
      {R"("timeout_seconds":0)", "timeout_seconds"},
      {R"("timeout_seconds":-1)", "timeout_seconds"},
      {R"("timeout_seconds":86401)", "timeout_seconds"},
      {R"("timeout_seconds":1e300)", "timeout_seconds"},
      {R"("timeout_seconds":"5")", "timeout_seconds"},
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
      {R"("cache_retention":{"seconds":5})", "cache_retention"},
      {R"("cache_retention":[5])", "cache_retention"},
      {R"("cache_retention":[{}])", "cache_retention"},
      {R"("cache_retention":[{"tokens":8}])", "cache_retention"},
      {R"("cache_retention":[{"tokens":0,"seconds":5}])", "cache_retention"},
      {R"("cache_retention":[{"tokens":1.5,"seconds":5}])", "cache_retention"},
      {R"("cache_retention":[{"seconds":0}])", "cache_retention"},
      {R"("cache_retention":[{"seconds":-1}])", "cache_retention"},
      {R"("cache_retention":[{"seconds":86401}])", "cache_retention"},
      {R"("cache_retention":[{"seconds":"5"}])", "cache_retention"},
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
TEST(OpenAiRefusals, EveryFieldWithEveryType) {
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

// LEN-06, LEN-07, LEN-08, JSN-07, LEN-13.
TEST(OpenAiRefusals, PromptsThatAreRefused) {
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
TEST(OpenAiRefusals, Conversations) {
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

// JSN-01, UTF-05, JSN-10: a bad body is 400 with a place, with any headers.
TEST(OpenAiRefusals, MalformedBodies) {
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

// The range that is told is the field's own, whatever was given.
TEST(OpenAiRefusals, BeyondThirtyTwoBits) {
  GatewayRig rig;
  const auto message = [&](const std::string& fields) {
    return ErrorOf(rig.Post(kChat, Chat(fields))).message;
  };
  EXPECT_EQ(message(R"("n":2147483648)"), "n is 2147483648; it must be between 1 and 16");
  EXPECT_EQ(message(R"("n":-4294967295)"), "n is -4294967295; it must be between 1 and 16");
  EXPECT_EQ(message(R"("priority":2147483648)"),
            "priority is 2147483648; it must be between -100 and 0");
  // What has no upper end takes it.
  for (const std::string fields : {R"("top_k":2147483648)", R"("max_tokens":2147483648)",
                                   R"("cache_retention":[{"tokens":2147483648,"seconds":1}])"}) {
    EXPECT_EQ(rig.Post(kChat, Chat(fields)).status, 200) << fields;
    EXPECT_EQ(rig.Post(kCompletions, Completion(fields)).status, 200) << fields;
  }
}

TEST(OpenAiRefusals, AnAnswerOfDetokenizeIsBounded) {
  GatewayRig rig({.script = Say("x")}, {}, {.limits = {.text_bytes_max = 10}});
  EXPECT_EQ(rig.Post("/detokenize", R"({"tokens":[97,97,97,97,97,97,97,97,97,97]})").status, 200);
  const ErrorFacts error =
      ErrorOf(rig.Post("/detokenize", R"({"tokens":[97,97,97,97,97,97,97,97,97,97,97]})"));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "tokens");
  EXPECT_THAT(error.message, HasSubstr("longer than 10 bytes"));
}

}  // namespace
}  // namespace polysil

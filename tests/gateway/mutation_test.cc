// Thousands of damaged requests, the same in every run: bodies, then heads. Each is answered with
// 2xx or 4xx, in strict JSON or a well-formed stream, and the server lives.
#include <gtest/gtest.h>

#include <random>

#include "gateway/gateway_rig.h"

namespace polysil {
namespace {

constexpr const char* kBodies[][2] = {
    {"/v1/completions",
     R"({"model":"test-model","prompt":"hi \u00e9 \ud83d\ude00","max_tokens":5,"temperature":0.7,
      "top_p":0.9,"top_k":5,"min_p":0.1,"n":2,"logprobs":2,"echo":true,"stop":["a","bc"],
      "stop_token_ids":[7,8],"logit_bias":{"5":1.5,"7":-100},"seed":42,"stream":true,
      "stream_options":{"include_usage":true},"return_token_ids":true,"user":"me"})"},
    {"/v1/completions", R"({"prompt":[[1,2,3],[4,5]],"max_tokens":3,"presence_penalty":1.0,
      "frequency_penalty":-1.0,"repetition_penalty":1.1,"min_tokens":1,"ignore_eos":true})"},
    {"/v1/chat/completions",
     R"({"messages":[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":
      "text","text":"hi"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":
      "function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"4",
      "tool_call_id":"1"}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":
      "auto","max_completion_tokens":5,"logprobs":true,"top_logprobs":3,"response_format":{"type":
      "text"},"chat_template_kwargs":{"enable_thinking":false},"metadata":{"a":"b"}})"},
    {"/tokenize", R"({"prompt":"hi <|im_end|>","add_special_tokens":true,"parse_special":true})"},
    {"/detokenize", R"({"tokens":[104,105,262],"skip_special_tokens":true})"}};

constexpr const char* kPieces[] = {"null",
                                   "true",
                                   "false",
                                   "[]",
                                   "{}",
                                   "\"\"",
                                   "-1",
                                   "0",
                                   "1e999",
                                   "1e-400",
                                   "99999999999999999999",
                                   "[[[[[[[[",
                                   "\\ud800",
                                   "\\u0000",
                                   "\xFF",
                                   "\xED\xA0\x80",
                                   "\"",
                                   "\\",
                                   ",",
                                   ":",
                                   "}",
                                   "]",
                                   "NaN",
                                   "2147483648",
                                   "-9223372036854775808",
                                   "0.5",
                                   "1.0"};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Damage(std::string text) {
    const size_t times = 1 + Below(3);
    for (size_t i = 0; i < times && !text.empty(); ++i) Once(text);
    return text;
  }

  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }

 private:
  void Once(std::string& text) {
    const size_t at = Below(text.size());
    const size_t length = 1 + Below(std::min<size_t>(text.size() - at, 12));
    switch (Below(6)) {
      case 0:
        text[at] = static_cast<char>(random_());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, kPieces[Below(std::size(kPieces))]);
        break;
      case 3:
        text.replace(at, length, kPieces[Below(std::size(kPieces))]);
        break;
      case 4:
        text.insert(Below(text.size()), text.substr(at, length * 4));
        break;
      default:
        text.resize(at);
        break;
    }
  }

  std::mt19937_64 random_;
};

void CheckAnswer(const HttpAnswer& answer, const std::string& what) {
  ASSERT_TRUE(answer.complete) << what;
  ASSERT_TRUE(answer.status / 100 == 2 || answer.status / 100 == 4) << answer.status << what;
  if (answer.Header("content-type") == "text/event-stream") {
    const EventStream stream(answer.body);
    ASSERT_TRUE(stream.well_formed && stream.done) << what;
    return;
  }
  boost::system::error_code error;
  boost::json::parse(answer.body, error);
  ASSERT_FALSE(error) << what << answer.body;
}

TEST(Mutation, Bodies) {
  GatewayRig rig({.script = Say("ok")});
  HttpClient client(rig.gateway->port());
  Mutator mutator(20'231'130);
  int accepted = 0;
  constexpr int kRounds = 6'000;
  for (int i = 0; i < kRounds; ++i) {
    const auto& [path, body] = kBodies[static_cast<size_t>(i) % std::size(kBodies)];
    const std::string damaged = mutator.Damage(body);
    ASSERT_TRUE(client.Post(path, damaged)) << damaged;
    const HttpAnswer answer = client.Receive();
    ASSERT_NO_FATAL_FAILURE(CheckAnswer(answer, damaged));
    if (answer.status == 200) ++accepted;
  }
  // Both kinds happen, or the test tests nothing.
  EXPECT_GT(accepted, kRounds / 50);
  EXPECT_LT(accepted, kRounds * 9 / 10);
  EXPECT_TRUE(rig.engine.WaitUntilIdle());
  EXPECT_EQ(rig.engine.Stats().requests_error, 0u);
}

TEST(Mutation, WholeRequests) {
  GatewayRig rig({.script = Say("ok")});
  Mutator mutator(7);
  const std::string request =
      "POST /tokenize HTTP/1.1\r\nHost: test\r\nX-Request-Id: abc\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"prompt\": "
      "\"hi\"}\r\n0\r\n\r\n";
  for (int i = 0; i < 1'500; ++i) {
    const std::string damaged = mutator.Damage(request);
    HttpClient client(rig.gateway->port());
    client.Send(damaged);
    client.ShutdownSend();
    // Cut short there may be no answer; what comes is whole.
    while (true) {
      const HttpAnswer answer = client.Receive();
      if (answer.status == 0) break;
      ASSERT_NO_FATAL_FAILURE(CheckAnswer(answer, damaged));
    }
  }
  EXPECT_EQ(rig.Get("/health").status, 200);
}

}  // namespace
}  // namespace polysil

// The event streams of the OpenAI endpoints. Names of cases are those of the field-case catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <map>
#include <set>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

// SSE-01, SSE-04, SSE-08, SSE-09.
TEST(OpenAiStream, ChatStream) {
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

TEST(OpenAiStream, CompletionStream) {
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
TEST(OpenAiStream, StreamOfSeveralChoices) {
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
TEST(OpenAiStream, HostileTextInAStream) {
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
TEST(OpenAiStream, BrokenCharacters) {
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
TEST(OpenAiStream, FailuresBeforeAndAfterTheFirstToken) {
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

}  // namespace
}  // namespace polysil

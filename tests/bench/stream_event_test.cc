#include "bench/stream_event.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

StreamEvent Parse(std::string_view data) {
  auto event = ParseStreamEvent(data);
  EXPECT_TRUE(event.ok()) << data << ": " << Message(event.status());
  return event.ok() ? *std::move(event) : StreamEvent{};
}

TEST(StreamEvent, TextOfCompletionsAndChats) {
  const StreamEvent text = Parse(R"({"choices": [{"text": " sea", "finish_reason": null}]})");
  EXPECT_TRUE(text.has_choice);
  EXPECT_EQ(text.text, " sea");
  EXPECT_EQ(text.finish_reason, "");
  EXPECT_EQ(Parse(R"({"choices": [{"delta": {"content": "sea"}}]})").text, "sea");
  EXPECT_EQ(Parse(R"({"choices": [{"delta": {"reasoning_content": "hm"}}]})").text, "hm");
  const StreamEvent role = Parse(R"({"choices": [{"delta": {"role": "assistant"}}]})");
  EXPECT_TRUE(role.has_choice);
  EXPECT_EQ(role.text, "");
  EXPECT_EQ(Parse(R"({"choices": [{"text": "", "finish_reason": "length"}]})").finish_reason,
            "length");
}

TEST(StreamEvent, UsageAndEnd) {
  const StreamEvent event = Parse(
      R"({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3,
          "prompt_tokens_details": {"cached_tokens": 8}}})");
  EXPECT_FALSE(event.has_choice);
  ASSERT_TRUE(event.usage.has_value());
  EXPECT_EQ(event.usage->input_tokens, 12);
  EXPECT_EQ(event.usage->output_tokens, 3);
  EXPECT_EQ(event.usage->cached_tokens, 8);
  EXPECT_FALSE(Parse(R"({"choices": [], "usage": null})").usage.has_value());
  EXPECT_TRUE(Parse("[DONE]").done);
}

TEST(StreamEvent, AnErrorHasItsMessage) {
  EXPECT_EQ(Parse(R"({"error": {"message": "out of memory", "code": 500}})").error,
            "out of memory");
  EXPECT_EQ(Parse(R"({"error": "bad"})").error, "\"bad\"");
  EXPECT_EQ(Parse(R"({"error": null, "choices": []})").error, "");
}

TEST(StreamEvent, HostileEventsAreRefusedOrSayNothing) {
  for (const std::string_view data :
       {"", "x", "[1]", "{\"choices\": [", "\"text\"", "[DONE] ", "{\"a\": \"\xff\"}"}) {
    EXPECT_FALSE(ParseStreamEvent(data).ok()) << data;
  }
  EXPECT_FALSE(ParseStreamEvent(std::string(100'000, '[')).ok());
  for (const std::string_view data :
       {"{}", R"({"choices": 1})", R"({"choices": [7]})", R"({"choices": [{"text": 1}]})",
        R"({"choices": [{"delta": []}]})"}) {
    EXPECT_EQ(Parse(data).text, "") << data;
  }
  const StreamEvent huge =
      Parse(R"({"usage": {"prompt_tokens": 99999999999, "completion_tokens": -4, "x": 1e400}})");
  EXPECT_EQ(huge.usage->input_tokens, 2147483647);
  EXPECT_EQ(huge.usage->output_tokens, 0);
}

}  // namespace
}  // namespace polysil

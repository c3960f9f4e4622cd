// "timeout_seconds": what an HTTP call gets that can wait no longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"
#include "gateway/routes.h"
#include "session/text_hold.h"

namespace polysil {
namespace {

using testing::HasSubstr;

std::string TimeoutBody(bool chat, const std::string& fields) {
  return chat ? Chat(fields) : Completion(fields);
}

TEST(TimeoutHttp, BeforeTheFirstByteItIs504) {
  GatewayRig rig({.script = Say("Hello")});
  rig.engine.AllowTokens(0);
  for (const bool chat : {false, true}) {
    for (const std::string stream : {"false", "true"}) {
      const std::string fields = R"("timeout_seconds":0.02,"stream":)" + stream;
      const ErrorFacts error =
          ErrorOf(rig.Post(chat ? kChat : kCompletions, TimeoutBody(chat, fields)));
      EXPECT_EQ(error.status, 504);
      EXPECT_EQ(error.type, "timeout_error");
      EXPECT_THAT(error.message, HasSubstr("deadline"));
    }
  }
  EXPECT_TRUE(rig.engine.WaitUntilIdle());
}

TEST(TimeoutHttp, AfterItAnEventOfTheStream) {
  GatewayRig rig({.script = Say("Hello")});
  rig.engine.AllowTokens(2);
  const HttpAnswer answer =
      rig.Post(kCompletions, Completion(R"("stream":true,"timeout_seconds":1)"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.complete);
  const EventStream stream(answer.body);
  ASSERT_TRUE(stream.well_formed);
  EXPECT_FALSE(stream.done);
  EXPECT_THAT(Str(stream.events.back().at("error").at("message")), HasSubstr("deadline"));
  EXPECT_TRUE(rig.engine.WaitUntilIdle());
}

TEST(TimeoutHttp, EnoughTimeChangesNothing) {
  GatewayRig rig;
  for (const std::string field : {R"("timeout_seconds":86400)", R"("timeout_seconds":null)"}) {
    EXPECT_EQ(rig.Post(kChat, Chat(field)).status, 200);
  }
  EXPECT_GT(rig.engine.submitted().at(0).deadline_ns, rig.clock.NowNs());
  EXPECT_EQ(rig.engine.submitted().at(1).deadline_ns, 0);
}

// As the engine says it of a request whose turn cannot come in time.
TEST(TimeoutHttp, WhatCannotBeMetIs429) {
  GatewayRig rig({.manual = true});
  HttpClient client(rig.gateway->port());
  client.Post(kChat, Chat(R"("stream":true,"timeout_seconds":60)"));
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(1));
  SequenceOutput refused{.finish = FinishReason::kError};
  refused.status = ResourceExhausted("its turn cannot come before its deadline");
  rig.engine.Deliver(rig.engine.submitted().at(0).id, std::move(refused));
  const HttpAnswer answer = client.Receive();
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.Header("retry-after"), "7");
  EXPECT_THAT(answer.body, HasSubstr("before its deadline"));
}

// An exchange whose client hears nothing.
class SilentExchange final : public Exchange {
 public:
  void Post(std::function<void()> /*task*/) override {}
  void SetGone(std::function<void()> /*gone*/) override {}
  void Reply(HttpReply /*reply*/) override {}
  void BeginStream(std::string_view /*content_type*/) override {}
  void Write(std::string_view /*bytes*/) override {}
  void EndStream() override {}
  void WhenSent(std::function<void()> task) override { task(); }
};

TEST(TimeoutHttp, ItRunsWhileALongTextWaitsForItsThread) {
  GatewayRig rig({.limits = {.vocab_size = 300,
                             .context_tokens_max = 1'000'000,
                             .kv_tokens_max = 1'000'000,
                             .sequences_max = 1},
                  .script = Say("x")},
                 {}, {.threads = 1});
  TextHold hold(*rig.service);
  const auto routes = std::make_shared<Routes>(rig.slot, "1.2.3");
  const std::string prompt(100'000, 'a');
  routes->Handle({.method = "POST",
                  .path = kCompletions,
                  .body = R"({"timeout_seconds":1000,"prompt":")" + prompt + "\"}"},
                 std::make_shared<SilentExchange>());
  const int64_t waiting_ns = rig.clock.NowNs();
  hold.Release();
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(1));
  EXPECT_LE(rig.engine.submitted().at(0).deadline_ns, waiting_ns + 1'000'000'000'000);
}

}  // namespace
}  // namespace polysil

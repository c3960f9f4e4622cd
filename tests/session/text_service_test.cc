// TextService over a manual FakeEngine: the test is the engine's output thread. Names of cases are
// those of the field-case catalogue.
#include "session/text_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>

#include "session/manual_rig.h"
#include "session/text_hold.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

TEST(TextService, GivesTextTokensFinishAndUsage) {
  ManualRig rig;
  ASSERT_TRUE(rig.Start(Ask("hi")).ok());
  const Request request = rig.engine.submitted().at(0);
  EXPECT_THAT(request.prompt, ElementsAre('h', 'i'));
  EXPECT_THAT(request.end_token_ids, ElementsAre(kEnd));
  EXPECT_EQ(request.sampling.tokens_max, 254);  // to the end of the context of 256

  rig.Give({'a'});
  rig.Give({'b', 'c'});
  EXPECT_FALSE(rig.sink->end().has_value());
  SequenceOutput last{.tokens = Tokens({kEnd}), .finish = FinishReason::kStop};
  last.prompt_tokens_cached = 1;
  rig.engine.Deliver(rig.id(), std::move(last));

  EXPECT_EQ(rig.sink->Text(), "abc");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kStop));
  ASSERT_TRUE(rig.sink->end().has_value());
  EXPECT_TRUE(rig.sink->end()->status.ok());
  EXPECT_EQ(rig.sink->end()->usage.prompt_tokens, 2);
  EXPECT_EQ(rig.sink->end()->usage.prompt_tokens_cached, 1);
  EXPECT_EQ(rig.sink->end()->usage.output_tokens, 4);  // the end token counts
  EXPECT_EQ(rig.sink->calls_after_end(), 0);
}

TEST(TextService, RandomSeedsDifferGivenSeedsStand) {
  ManualRig rig;
  TextCall call = Ask("a");
  call.prompts.emplace_back("b");
  ASSERT_TRUE(rig.Start(call).ok());
  call.seed = 0;  // SMP-03: zero is a seed
  ASSERT_TRUE(rig.Start(call).ok());
  const std::vector<Request> requests = rig.engine.submitted();
  EXPECT_NE(requests.at(0).sampling.seed, requests.at(1).sampling.seed);
  EXPECT_EQ(requests.at(2).sampling.seed, 0u);
  EXPECT_EQ(requests.at(3).sampling.seed, 0u);
}

TEST(TextService, SystemSeedsDiffer) {
  FakeEngine engine({.manual = true});
  SteadyClock clock;
  auto service =
      TextService::Create({}, {.names = {"m"}, .tokenizer = std::make_shared<ByteTokenizer>()},
                          engine, clock)
          .value();
  ASSERT_TRUE(service->Start(Ask("a"), std::make_shared<CollectSink>()).ok());
  ASSERT_TRUE(service->Start(Ask("a"), std::make_shared<CollectSink>()).ok());
  EXPECT_NE(engine.submitted()[0].sampling.seed, engine.submitted()[1].sampling.seed);
}

TEST(TextService, SeveralPromptsAreOneCall) {
  ManualRig rig;
  TextCall call = Ask("ab");
  call.prompts.emplace_back(std::vector<TokenId>{1, 2, 3});
  call.sequences = 2;
  ASSERT_TRUE(rig.Start(call).ok());
  ASSERT_EQ(rig.engine.submitted().size(), 2u);
  for (size_t p : {1, 0}) {
    for (int32_t s : {0, 1}) {
      EXPECT_FALSE(rig.sink->end().has_value());
      rig.Give({static_cast<TokenId>('a' + 2 * p + s), kEnd}, FinishReason::kStop, s, p);
    }
  }
  EXPECT_EQ(
      rig.sink->Text(0, 0) + rig.sink->Text(0, 1) + rig.sink->Text(1, 0) + rig.sink->Text(1, 1),
      "abcd");
  EXPECT_EQ(rig.sink->end()->usage.prompt_tokens, 5);
  EXPECT_EQ(rig.sink->end()->usage.output_tokens, 8);
}

// LEN-13: all or nothing, in both orders; a refusal of the engine half way takes the others back.
TEST(TextService, PromptsAreAcceptedTogetherOrNotAtAll) {
  for (const bool long_first : {false, true}) {
    ManualRig rig;
    TextCall call = Ask(long_first ? std::string(300, 'a') : "hi");
    call.prompts.emplace_back(long_first ? "hi" : std::string(300, 'a'));
    const Status status = rig.Start(call);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), "context_length_exceeded");
    EXPECT_THAT(rig.engine.submitted(), IsEmpty());
  }
  ManualRig rig({.manual = true, .running_max = 1, .queue_max = 1});
  TextCall call = Ask("a");
  call.prompts.emplace_back("b");
  call.prompts.emplace_back("c");
  EXPECT_EQ(rig.Start(call).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(rig.engine.cancels(), ElementsAre(rig.id(0), rig.id(1)));
  rig.Give({'x'}, FinishReason::kCancelled);
  EXPECT_THAT(rig.sink->deltas(), IsEmpty());
  EXPECT_FALSE(rig.sink->end().has_value());
}

TEST(TextService, CancelEndsOnceAndDropsWhatFollows) {
  ManualRig rig;
  TextCall call = Ask("x");
  call.sequences = 2;
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give({'a'});
  rig.handle->Cancel();
  rig.handle->Cancel();
  EXPECT_THAT(rig.engine.cancels(), ElementsAre(rig.id()));
  rig.Give({'b'});
  EXPECT_EQ(rig.sink->Text(), "a");
  rig.Give({}, FinishReason::kCancelled, 0);
  rig.Give({}, FinishReason::kCancelled, 1);
  EXPECT_EQ(rig.sink->end()->status.code(), StatusCode::kCancelled);
  EXPECT_EQ(rig.sink->calls_after_end(), 0);
}

TEST(TextService, CancelAfterTheEndIsHarmless) {
  ManualRig rig;
  ASSERT_TRUE(rig.Start(Ask("x")).ok());
  rig.Give({kEnd}, FinishReason::kStop);
  rig.handle->Cancel();
  EXPECT_TRUE(rig.sink->end()->status.ok());
  EXPECT_EQ(rig.sink->calls_after_end(), 0);
}

TEST(TextService, EngineEndsBecomeStatuses) {
  struct Case {
    FinishReason finish;
    StatusCode code;
  };
  for (const Case& test : {Case{FinishReason::kCancelled, StatusCode::kUnavailable},
                           Case{FinishReason::kDeadline, StatusCode::kDeadlineExceeded},
                           Case{FinishReason::kError, StatusCode::kInternal}}) {
    ManualRig rig;
    TextCall call = Ask("x");
    call.sequences = 2;
    ASSERT_TRUE(rig.Start(call).ok());
    rig.Give({'a'}, test.finish, 1);
    EXPECT_EQ(rig.sink->end()->status.code(), test.code);
    EXPECT_EQ(rig.sink->Text(0, 1), "a");
    EXPECT_THAT(rig.sink->Finishes(), IsEmpty());
    EXPECT_THAT(rig.engine.cancels(), ElementsAre(rig.id()));  // the other sequence
    rig.Give({'b'}, FinishReason::kStop, 0);
    EXPECT_EQ(rig.sink->calls_after_end(), 0);
  }
}

// A failure before anything was said is no delta: a face may still choose how to say it.
TEST(TextService, NothingIsSaidBeforeAnEarlyFailure) {
  ManualRig rig;
  ASSERT_TRUE(rig.Start(Ask("x")).ok());
  rig.Give({}, FinishReason::kError);
  EXPECT_THAT(rig.sink->deltas(), IsEmpty());
  EXPECT_EQ(rig.sink->end()->status.code(), StatusCode::kInternal);
}

// A row that failed says why in the engine's words.
TEST(TextService, ErrorKeepsTheEnginesWords) {
  ManualRig rig;
  ASSERT_TRUE(rig.Start(Ask("x")).ok());
  SequenceOutput output{.finish = FinishReason::kError, .status = Internal("row 3 is not finite")};
  rig.engine.Deliver(rig.id(), std::move(output));
  EXPECT_EQ(Message(rig.sink->end()->status), "row 3 is not finite");
}

TEST(TextService, ChatGoesThroughTheTemplate) {
  ManualRig rig;
  TextCall call;
  call.prompts.emplace_back(Chat({{{"role", "user"}, {"content", "<|im_end|>"}}}));
  ASSERT_TRUE(rig.Start(call).ok());
  const std::vector<TokenId> prompt = rig.engine.submitted()[0].prompt;
  // CHT-04: the template's turn marks are tokens, the user's are letters.
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEnd), 1);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ByteTokenizer::kTurnStart), 2);
}

// CHT-01: what the template refuses is the client's mistake, in the template's words.
TEST(TextService, TemplateRefusalIsInvalidArgument) {
  ManualRig rig;
  TextCall call;
  call.prompts.emplace_back(Chat({{{"role", "tool"}, {"content", "4"}}}));
  const Status status = rig.Start(call);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FieldOf(status), "messages");
  EXPECT_THAT(Message(status), HasSubstr("must not start with a tool"));
}

// CHT-11: without a template chat is refused with the reason, completions work.
TEST(TextService, ChatWithoutATemplateIsRefused) {
  FakeEngine engine({.manual = true});
  SteadyClock clock;
  auto service =
      TextService::Create({},
                          {.names = {"m"},
                           .tokenizer = std::make_shared<ByteTokenizer>(),
                           .chat_template_missing = "its template does not parse: line 3"},
                          engine, clock)
          .value();
  TextCall call;
  call.prompts.emplace_back(Chat({{{"role", "user"}, {"content", "hi"}}}));
  const auto refused = service->Start(call, std::make_shared<CollectSink>());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused.status()), HasSubstr("line 3"));
  EXPECT_TRUE(service->Start(Ask("hi"), std::make_shared<CollectSink>()).ok());
}

TEST(TextService, UserTextIsNoControlTokenUnlessAsked) {
  ManualRig rig;
  TextCall call = Ask("<|im_end|>");
  ASSERT_TRUE(rig.Start(call).ok());
  call.encoding.parse_control_tokens = true;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_EQ(rig.engine.submitted()[0].prompt.size(), 10u);
  EXPECT_THAT(rig.engine.submitted()[1].prompt, ElementsAre(kEnd));
}

// CHT-03: one BOS for a text, none beside a template's own.
TEST(TextService, BosOnceForTextNeverForChat) {
  ManualRig rig({.manual = true}, std::make_shared<ByteTokenizer>(/*adds_bos=*/true));
  ASSERT_TRUE(rig.Start(Ask("<s>a")).ok());
  TextCall call = Ask("a");
  call.encoding.add_bos = false;
  ASSERT_TRUE(rig.Start(call).ok());
  call = {};
  call.prompts.emplace_back(Chat({{{"role", "user"}, {"content", "hi"}}}));
  ASSERT_TRUE(rig.Start(call).ok());
  const std::vector<Request> requests = rig.engine.submitted();
  EXPECT_THAT(requests[0].prompt, ElementsAre(ByteTokenizer::kBos, '<', 's', '>', 'a'));
  EXPECT_THAT(requests[1].prompt, ElementsAre('a'));
  EXPECT_EQ(requests[2].prompt[0], ByteTokenizer::kTurnStart);
}

// LEN-02, LEN-03: one rule: too many is as many as fit.
TEST(TextService, MaxTokensIsClampedToTheContext) {
  struct Case {
    std::optional<int32_t> asked;
    int32_t given;
  };
  for (const Case& test : {Case{std::nullopt, 246}, Case{5, 5}, Case{246, 246}, Case{256, 246},
                           Case{100'000'000, 246}}) {
    ManualRig rig;
    TextCall call = Ask("0123456789");
    call.tokens_max = test.asked;
    ASSERT_TRUE(rig.Start(call).ok());
    EXPECT_EQ(rig.engine.submitted()[0].sampling.tokens_max, test.given);
  }
}

// LEN-08, LEN-09: the context, or the pool where that is smaller.
TEST(TextService, PromptMustLeaveRoomForAToken) {
  for (const bool small_pool : {false, true}) {
    FakeEngineOptions options{.manual = true};
    if (small_pool) {
      options.limits.context_tokens_max = 4096;
      options.limits.kv_tokens_max = 256;
    }
    ManualRig rig(options);
    EXPECT_TRUE(rig.Start(Ask(std::string(255, 'a'))).ok());
    EXPECT_EQ(rig.engine.submitted()[0].sampling.tokens_max, 1);
    for (const size_t length : {256, 257}) {
      const Status status = rig.Start(Ask(std::string(length, 'a')));
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(FieldOf(status), "prompt");
      EXPECT_THAT(Message(status), HasSubstr(std::to_string(length)));
    }
  }
}

// LEN-06: empty where there is no BOS; one token where there is.
TEST(TextService, EmptyPrompt) {
  ManualRig rig;
  EXPECT_EQ(FieldOf(rig.Start(Ask(""))), "prompt");
  ManualRig with_bos({.manual = true}, std::make_shared<ByteTokenizer>(/*adds_bos=*/true));
  EXPECT_TRUE(with_bos.Start(Ask("")).ok());
}

TEST(TextService, RefusesWhileNotReady) {
  ManualRig rig;
  rig.engine.SetReadiness({.ready = false, .reason = "no step for 5 s"});
  const Status status = rig.Start(Ask("hi"));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no step for 5 s"));
}

TEST(TextService, UnknownModelIsNotFound) {
  ManualRig rig;
  TextCall call = Ask("hi");
  for (const char* name : {"alias", "default"}) {
    call.model = name;
    EXPECT_TRUE(rig.Start(call).ok());
  }
  for (const char* name : {"", "gpt-4", "test-model\n[ERROR] fake"}) {
    call.model = name;
    const Status status = rig.Start(call);
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(ReasonOf(status), "model_not_found");
    EXPECT_EQ(Message(status).find('\n'), std::string::npos);  // OPS-12
  }
}

// OPS-02: refused at the door or by the engine, each once.
TEST(TextService, RefusalsAreCounted) {
  ManualRig rig({.manual = true, .running_max = 1, .queue_max = 0});
  ASSERT_TRUE(rig.Start(Ask("a")).ok());
  EXPECT_FALSE(rig.Start(Ask("b")).ok());
  EXPECT_FALSE(rig.Start(Ask("")).ok());
  rig.service->CountRefused();
  EXPECT_EQ(rig.service->Stats().requests_refused, 3u);
}

TEST(TextService, WhatMayBeTriedAgainAndWhen) {
  ManualRig rig;
  for (const Status& later : {ResourceExhausted("full"), Unavailable("not ready")}) {
    EXPECT_EQ(rig.service->RetryAfterSeconds(later), 7) << later;
  }
  for (const Status& never : {OkStatus(), InvalidArgument("x"), NotFound("x"), Internal("x"),
                              DeadlineExceeded("x"), Cancelled("x")}) {
    EXPECT_EQ(rig.service->RetryAfterSeconds(never), std::nullopt) << never;
  }
}

TEST(TextService, DeadlineIsOnTheEnginesClock) {
  ManualRig rig;
  TextCall call = Ask("a");
  call.timeout_ns = 1'000'000'000;
  const int64_t before = rig.clock.NowNs();
  ASSERT_TRUE(rig.Start(call).ok());
  const int64_t deadline = rig.engine.submitted()[0].deadline_ns;
  EXPECT_GE(deadline, before + 1'000'000'000);
  EXPECT_LE(deadline, rig.clock.NowNs() + 1'000'000'000);
  call.timeout_ns = 0;
  EXPECT_EQ(rig.Start(call).code(), StatusCode::kDeadlineExceeded);
}

// Reading a call, and waiting for a thread, is time that its client waits.
TEST(TextService, ADeadlineRunsSinceTheCallBegan) {
  ManualRig rig;
  TextCall call = Ask("a");
  call.ledger = rig.service->OpenLedger(/*age_ns=*/4'000'000'000, "");
  const int64_t opened = rig.clock.NowNs();
  call.timeout_ns = 3'000'000'000;
  EXPECT_EQ(rig.Start(call).code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(rig.engine.submitted(), IsEmpty());
  call.timeout_ns = 1'000'000'000'000;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_LE(rig.engine.submitted().at(0).deadline_ns, opened + 996'000'000'000);
}

TEST(TextService, IsIdleWhenAllTextsAreDone) {
  ManualRig rig;
  EXPECT_TRUE(rig.service->WaitIdle(0));
  bool idle_within = true;
  ASSERT_TRUE(rig.service->Run(1, {}, [&] { idle_within = rig.service->WaitIdle(0); }).ok());
  EXPECT_FALSE(idle_within);
  EXPECT_TRUE(rig.service->WaitIdle(0));
  TextHold hold(*rig.service);
  std::atomic<bool> done = false;
  ASSERT_TRUE(rig.service->Run(1 << 20, {}, [&] { done = true; }).ok());
  EXPECT_FALSE(rig.service->WaitIdle(0));
  hold.Release();
  ASSERT_TRUE(rig.service->WaitIdle(60'000'000'000));
  EXPECT_TRUE(done);
}

TEST(TextService, LongTextsRunOnAnotherThread) {
  ManualRig rig;
  const std::thread::id here = std::this_thread::get_id();
  std::promise<std::thread::id> there;
  ASSERT_TRUE(rig.service->Run(10, {}, [&] { there.set_value(std::this_thread::get_id()); }).ok());
  EXPECT_EQ(there.get_future().get(), here);
  there = {};
  ASSERT_TRUE(
      rig.service->Run(1 << 20, {}, [&] { there.set_value(std::this_thread::get_id()); }).ok());
  EXPECT_NE(there.get_future().get(), here);
}

TEST(TextService, LongTextsBeyondTheBoundAreRefused) {
  FakeEngine engine({.manual = true});
  SteadyClock clock;
  auto service =
      TextService::Create({.threads = 1, .queue_max = 1},
                          {.names = {"m"}, .tokenizer = std::make_shared<ByteTokenizer>()}, engine,
                          clock)
          .value();
  TextHold hold(*service);
  ASSERT_TRUE(service->Run(1 << 20, {}, [] {}).ok());
  EXPECT_EQ(service->Run(1 << 20, {}, [] {}).code(), StatusCode::kResourceExhausted);
  hold.Release();
}

TEST(TextService, TokenizeAndDetokenize) {
  ManualRig rig;
  EXPECT_THAT(rig.service->Tokenize(std::string("ab"), {}).value(), ElementsAre('a', 'b'));
  const std::vector<TokenId> ids = {ByteTokenizer::kHello, kEnd, 0xE6};
  EXPECT_EQ(rig.service->Detokenize(ids, true).value(), "Hello\xEF\xBF\xBD");
  EXPECT_EQ(rig.service->Detokenize(ids, false).value(), "Hello<|im_end|>\xEF\xBF\xBD");
  for (const TokenId bad : {-1, 300, std::numeric_limits<TokenId>::max()}) {
    EXPECT_EQ(FieldOf(rig.service->Detokenize(std::vector<TokenId>{bad}, true).status()), "tokens");
  }
}

TEST(TextService, EndTokensOutsideTheVocabularyAreRefusedAtLoad) {
  FakeEngine engine({.manual = true});
  SteadyClock clock;
  EXPECT_FALSE(
      TextService::Create(
          {},
          {.names = {"m"}, .tokenizer = std::make_shared<ByteTokenizer>(), .end_token_ids = {300}},
          engine, clock)
          .ok());
}

// CAN-08: cancels that meet every other change of state; each call ends once, counters add up.
TEST(TextService, CancelsAtAnyMoment) {
  FakeEngineOptions options{.running_max = 8};
  options.script = [](const Request&, int32_t) {
    std::vector<TokenId> ids(12, 'a');
    ids.push_back(kEnd);
    return ids;
  };
  ManualRig rig(options);
  std::vector<std::shared_ptr<CollectSink>> sinks;
  std::vector<std::shared_ptr<TextCallHandle>> handles;
  uint64_t random = 1;
  for (int i = 0; i < 500; ++i) {
    TextCall call = Ask("hi");
    call.sequences = 1 + i % 3;
    if (i % 4 == 0) call.stop.strings = {"aaa"};
    sinks.push_back(std::make_shared<CollectSink>());
    handles.push_back(rig.service->Start(call, sinks.back()).value());
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    handles[(random >> 33) % handles.size()]->Cancel();
  }
  for (const auto& sink : sinks) {
    const TextEnd end = sink->WaitEnd();
    EXPECT_TRUE(end.status.ok() || end.status.code() == StatusCode::kCancelled) << end.status;
    EXPECT_EQ(sink->calls_after_end(), 0);
  }
  ASSERT_TRUE(rig.engine.WaitUntilIdle());
  const EngineStats stats = rig.service->Stats();
  EXPECT_EQ(stats.requests_stop + stats.requests_length + stats.requests_cancelled, 500u);
  EXPECT_EQ(stats.requests_running, 0);
}

}  // namespace
}  // namespace polysil

// TextService over a manual FakeEngine: the test is the engine's output thread. Names of cases are
// those of the field-case catalogue.
#include "session/text_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <limits>

#include "fakes/fake_engine.h"
#include "session/byte_tokenizer.h"
#include "session/collect_sink.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

std::vector<OutputToken> Tokens(std::vector<TokenId> ids) {
  std::vector<OutputToken> tokens;
  for (const TokenId id : ids) tokens.push_back({.id = id, .logprobs = std::nullopt});
  return tokens;
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

struct Rig {
  explicit Rig(FakeEngineOptions options = {.manual = true},
               std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<ByteTokenizer>())
      : engine(std::move(options)) {
    TextModel model{.names = {"test-model", "alias"}, .tokenizer = std::move(tokenizer)};
    model.chat_template = ChatmlTemplate();
    service = TextService::Create({.seed_source = [this] { return next_seed++; }}, std::move(model),
                                  engine, clock)
                  .value();
  }

  Status Start(TextCall call) {
    StatusOr<std::shared_ptr<TextCallHandle>> started = service->Start(std::move(call), sink);
    if (!started.ok()) return started.status();
    handle = *std::move(started);
    return OkStatus();
  }
  RequestId id(size_t prompt_index = 0) const { return engine.submitted().at(prompt_index).id; }
  void Give(std::vector<TokenId> ids, std::optional<FinishReason> finish = std::nullopt,
            int32_t sequence_index = 0, size_t prompt_index = 0) {
    SequenceOutput output;
    output.sequence_index = sequence_index;
    output.tokens = Tokens(std::move(ids));
    output.finish = finish;
    engine.Deliver(id(prompt_index), std::move(output));
  }

  SteadyClock clock;
  uint64_t next_seed = 1000;
  FakeEngine engine;
  std::shared_ptr<CollectSink> sink = std::make_shared<CollectSink>();
  std::unique_ptr<TextService> service;
  std::shared_ptr<TextCallHandle> handle;
};

TextCall Ask(std::string prompt) {
  TextCall call;
  call.prompts.emplace_back(std::move(prompt));
  return call;
}

ChatInput Chat(std::initializer_list<boost::json::value> messages) {
  ChatInput chat;
  for (const boost::json::value& message : messages) chat.messages.push_back(message);
  return chat;
}

TEST(TextService, GivesTextTokensFinishAndUsage) {
  Rig rig;
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
  Rig rig;
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

// STP-01, STP-05: nothing of a stop string leaves; the engine is told; late tokens are dropped.
TEST(TextService, StopStringEndsTheSequenceAtOnce) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"DEF"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give({'a', 'D'});
  EXPECT_EQ(rig.sink->Text(), "a");
  rig.Give({'E'});
  rig.Give({'F', 'z', 'z'});
  ASSERT_TRUE(rig.sink->end().has_value());
  EXPECT_TRUE(rig.sink->end()->status.ok());
  EXPECT_EQ(rig.sink->Text(), "a");
  EXPECT_EQ(rig.sink->deltas().back().stop_string, "DEF");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kStop));
  EXPECT_THAT(rig.engine.stops(), ElementsAre(std::pair(rig.id(), 0)));
  EXPECT_EQ(rig.sink->end()->usage.output_tokens, 4);  // a, D, E, F

  rig.Give({'q'});
  rig.Give({}, FinishReason::kStop);
  EXPECT_EQ(rig.sink->Text(), "a");
  EXPECT_EQ(rig.sink->calls_after_end(), 0);
}

// STP-02, STP-03: a false alarm loses nothing, neither later nor at the end.
TEST(TextService, HeldTextComesWhenItCannotBeAStop) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"own fox", "assistant"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("brown f"));
  EXPECT_EQ(rig.sink->Text(), "br");
  rig.Give(Bytes("ix as"));
  EXPECT_EQ(rig.sink->Text(), "brown fix ");
  rig.Give({kEnd}, FinishReason::kStop);
  EXPECT_EQ(rig.sink->Text(), "brown fix as");
}

TEST(TextService, HeldTextComesAtTheLengthLimit) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"assistant"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("pleas"), FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "pleas");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kLength));
}

// A stop string that ends with the last token that the length allows is a stop.
TEST(TextService, StopStringWinsOverLength) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"END"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("aEND"), FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "a");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kStop));
  EXPECT_THAT(rig.engine.stops(), IsEmpty());  // it has ended by itself
}

// STP-04: only what may still become a stop is held.
TEST(TextService, LongStopStringHoldsNothingBack) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {std::string(500, 'Z')};
  ASSERT_TRUE(rig.Start(call).ok());
  for (const char c : std::string("hello")) rig.Give({c});
  EXPECT_EQ(rig.sink->deltas().size(), 5u);
  EXPECT_EQ(rig.sink->Text(), "hello");
}

// STP-05: the cut is at a character, inside a token; the token counts once.
TEST(TextService, StopInsideOfATokenCutsIt) {
  struct Case {
    std::string stop;
    TokenId token;
    std::string text;
  };
  for (const Case& test :
       {Case{"..", ByteTokenizer::kDots, ""}, Case{"stop", ByteTokenizer::kStopBang, ""},
        Case{".", ByteTokenizer::kADotB, " a"}}) {
    Rig rig;
    TextCall call = Ask("x");
    call.stop.strings = {test.stop};
    ASSERT_TRUE(rig.Start(call).ok());
    rig.Give({test.token});
    EXPECT_EQ(rig.sink->Text(), test.text);
    EXPECT_EQ(rig.sink->end()->usage.output_tokens, 1);
  }
}

// STP-06: bytes, not characters, and no normalisation.
TEST(TextService, StopStringAcrossTheBytesOfACharacter) {
  for (const std::string stop : {"\xC3\xA9", "\xF0\x9F\x98\x80"}) {
    Rig rig;
    TextCall call = Ask("x");
    call.stop.strings = {stop};
    ASSERT_TRUE(rig.Start(call).ok());
    for (const TokenId id : Bytes("a" + stop)) rig.Give({id});
    EXPECT_EQ(rig.sink->Text(), "a");
    EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kStop));
  }
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"e\xCC\x81"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("\xC3\xA9"), FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "\xC3\xA9");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kLength));
}

TEST(TextService, IncludeStopKeepsStopStringsAndEndTokens) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop = {.strings = {"END"}, .include_in_text = true};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("aENDb"));
  EXPECT_EQ(rig.sink->Text(), "aEND");

  Rig other;
  call.skip_control = false;
  ASSERT_TRUE(other.Start(call).ok());
  other.Give({'a', kEnd}, FinishReason::kStop);
  EXPECT_EQ(other.sink->Text(), "a<|im_end|>");
}

// A token of stop_token_ids ends the text before itself, whether or not it is a control token.
TEST(TextService, StopTokenGivesNoText) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.token_ids = {'q'};
  call.skip_control = false;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_THAT(rig.engine.submitted()[0].end_token_ids, ElementsAre('q', kEnd));
  rig.Give({'a', 'q'}, FinishReason::kStop);
  EXPECT_EQ(rig.sink->Text(), "a");
  EXPECT_EQ(rig.sink->Tokens().size(), 2u);
}

// STP-10: ignore_eos removes the model's end tokens; the request's stay.
TEST(TextService, IgnoreEosKeepsStopTokenIds) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop = {.token_ids = {7}, .ignore_eos = true};
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_THAT(rig.engine.submitted()[0].end_token_ids, ElementsAre(7));
  rig.Give({'a', kEnd, 'b'}, FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "ab");
}

// STP-12: stop strings are not looked for before min_tokens.
TEST(TextService, StopStringsWaitForMinTokens) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"a"};
  call.sampling.tokens_min = 3;
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give({'a', 'a', 'b'});
  rig.Give({'c', 'a'});
  EXPECT_EQ(rig.sink->Text(), "aabc");
  EXPECT_EQ(rig.sink->end()->usage.output_tokens, 5);
}

// UTF-01, UTF-07, UTF-09: a character leaves when it is whole; a broken one becomes U+FFFD.
TEST(TextService, CharactersLeaveWhole) {
  Rig rig;
  ASSERT_TRUE(rig.Start(Ask("x")).ok());
  for (int i = 0; i < 3; ++i) {
    for (const TokenId id : Bytes("\xF0\x9F\x98\x80")) rig.Give({id});
  }
  rig.Give({0xE6});
  rig.Give({ByteTokenizer::kWorld});
  rig.Give({0xC4}, FinishReason::kLength);
  std::vector<std::string> texts;
  for (const TextDelta& delta : rig.sink->deltas()) {
    if (!delta.text.empty()) texts.push_back(delta.text);
  }
  EXPECT_THAT(texts, ElementsAre("\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80",
                                 "\xEF\xBF\xBD world", "\xEF\xBF\xBD"));
}

// UTF-10: each sequence has a state of its own.
TEST(TextService, SequencesDoNotMixTheirBytes) {
  Rig rig;
  TextCall call = Ask("x");
  call.sequences = 2;
  ASSERT_TRUE(rig.Start(call).ok());
  const std::vector<TokenId> grin = Bytes("\xF0\x9F\x98\x80");
  const std::vector<TokenId> sun = Bytes("\xE6\x97\xA5");
  for (size_t i = 0; i < 4; ++i) {
    rig.Give({grin[i]}, std::nullopt, 0);
    if (i < 3) rig.Give({sun[i]}, std::nullopt, 1);
  }
  rig.Give({kEnd}, FinishReason::kStop, 1);
  EXPECT_FALSE(rig.sink->end().has_value());
  rig.Give({kEnd}, FinishReason::kStop, 0);
  EXPECT_EQ(rig.sink->Text(0, 0), "\xF0\x9F\x98\x80");
  EXPECT_EQ(rig.sink->Text(0, 1), "\xE6\x97\xA5");
  EXPECT_EQ(rig.sink->end()->usage.prompt_tokens, 1);  // SSE-03: once for both
  EXPECT_EQ(rig.sink->end()->usage.output_tokens, 9);
}

TEST(TextService, SeveralPromptsAreOneCall) {
  Rig rig;
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
    Rig rig;
    TextCall call = Ask(long_first ? std::string(300, 'a') : "hi");
    call.prompts.emplace_back(long_first ? "hi" : std::string(300, 'a'));
    const Status status = rig.Start(call);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), "context_length_exceeded");
    EXPECT_THAT(rig.engine.submitted(), IsEmpty());
  }
  Rig rig({.manual = true, .running_max = 1, .queue_max = 1});
  TextCall call = Ask("a");
  call.prompts.emplace_back("b");
  call.prompts.emplace_back("c");
  EXPECT_EQ(rig.Start(call).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(rig.engine.cancels(), ElementsAre(rig.id(0), rig.id(1)));
  rig.Give({'x'}, FinishReason::kCancelled);
  EXPECT_THAT(rig.sink->deltas(), IsEmpty());
  EXPECT_FALSE(rig.sink->end().has_value());
}

TEST(TextService, EchoGivesThePromptFirst) {
  Rig rig;
  TextCall call = Ask("caf\xC3\xA9 ");
  call.echo = true;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_FALSE(rig.engine.submitted()[0].sampling.prompt_logprobs.has_value());
  rig.Give({'a'});
  rig.Give({kEnd}, FinishReason::kStop);
  EXPECT_EQ(rig.sink->Text(), "caf\xC3\xA9 a");
  EXPECT_THAT(rig.sink->deltas()[0].echo.tokens, IsEmpty());
}

// LGP-11: a prompt of ids is echoed as its text.
TEST(TextService, EchoOfTokenIdsIsTheirText) {
  Rig rig;
  TextCall call;
  call.prompts.emplace_back(
      std::vector<TokenId>{ByteTokenizer::kBos, ByteTokenizer::kHello, 0xC3, 0xA9, 0xE6});
  call.echo = true;
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give({'a'}, FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(),
            "Hello\xC3\xA9\xEF\xBF\xBD"
            "a");
}

// LGP-06, LGP-12: entry 0 has none; offsets count code points from the start of the prompt.
TEST(TextService, EchoWithLogprobsCoversThePrompt) {
  Rig rig;
  TextCall call = Ask("\xC3\xA9!");
  call.echo = true;
  call.sampling.logprobs = 1;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_EQ(rig.engine.submitted()[0].sampling.prompt_logprobs, 1);
  SequenceOutput output;
  output.prompt_logprobs = {{{0xA9, -1.0F}, {{'x', -0.5F}}}, {{'!', -2.0F}, {}}};
  output.tokens = {{.id = 'a', .logprobs = TokenLogprobs{{'a', -3.0F}, {{'b', -2.5F}}}}};
  output.finish = FinishReason::kLength;
  rig.engine.Deliver(rig.id(), std::move(output));

  const TextDelta delta = rig.sink->deltas().at(0);
  ASSERT_EQ(delta.echo.tokens.size(), 3u);
  EXPECT_FALSE(delta.echo.tokens[0].logprob.has_value());
  EXPECT_EQ(delta.echo.tokens[1].logprob, -1.0F);
  EXPECT_EQ(delta.echo.tokens[1].top[0].bytes, "x");
  EXPECT_EQ(delta.echo.tokens[2].logprob, -2.0F);
  EXPECT_EQ(delta.echo.tokens[0].text_offset, 0);
  EXPECT_EQ(delta.echo.tokens[1].text_offset, 0);  // the second byte of the first character
  EXPECT_EQ(delta.echo.tokens[2].text_offset, 1);
  ASSERT_EQ(delta.tokens.size(), 1u);
  EXPECT_EQ(delta.tokens[0].text_offset, 2);
  EXPECT_EQ(delta.tokens[0].bytes, "a");
  EXPECT_EQ(delta.tokens[0].top[0].bytes, "b");
}

// LEN-01: scoring. The engine must choose a token; nobody sees it.
TEST(TextService, EchoWithoutOutput) {
  Rig rig;
  TextCall call = Ask("Yes");
  call.echo = true;
  call.tokens_max = 0;
  call.sampling.logprobs = 1;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_EQ(rig.engine.submitted()[0].sampling.tokens_max, 1);
  SequenceOutput output{.tokens = Tokens({kEnd}), .finish = FinishReason::kStop};
  output.prompt_logprobs = {{{'e', -1.0F}, {}}, {{'s', -2.0F}, {}}};
  rig.engine.Deliver(rig.id(), std::move(output));
  EXPECT_EQ(rig.sink->Text(), "Yes");
  EXPECT_THAT(rig.sink->Tokens(), IsEmpty());
  EXPECT_EQ(rig.sink->deltas()[0].echo.tokens.size(), 3u);
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kLength));
  EXPECT_EQ(rig.sink->end()->usage.output_tokens, 0);
}

TEST(TextService, FailureOfAScoringCallIsAFailure) {
  Rig rig;
  TextCall call = Ask("Yes");
  call.echo = true;
  call.tokens_max = 0;
  ASSERT_TRUE(rig.Start(call).ok());
  SequenceOutput output{.finish = FinishReason::kError, .status = Internal("boom")};
  rig.engine.Deliver(rig.id(), std::move(output));
  EXPECT_EQ(rig.sink->end()->status.code(), StatusCode::kInternal);
  EXPECT_THAT(rig.sink->Finishes(), IsEmpty());
}

// LGP-09: one entry for each token, however the text is held back.
TEST(TextService, LogprobsComeWithTheirToken) {
  Rig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"Helloxxx"};
  call.sampling.logprobs = 0;
  ASSERT_TRUE(rig.Start(call).ok());
  for (const TokenId id : {TokenId{ByteTokenizer::kHello}, TokenId{'!'}}) {
    SequenceOutput output;
    output.tokens = {{.id = id, .logprobs = TokenLogprobs{{id, -1.0F}, {}}}};
    rig.engine.Deliver(rig.id(), std::move(output));
  }
  const std::vector<TextDelta> deltas = rig.sink->deltas();
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].text, "");
  EXPECT_EQ(deltas[0].tokens.size(), 1u);
  EXPECT_EQ(deltas[0].tokens[0].text_offset, 1);
  EXPECT_EQ(deltas[1].text, "Hello!");
  EXPECT_EQ(deltas[1].tokens.size(), 1u);
  EXPECT_EQ(deltas[1].tokens[0].text_offset, 6);
}

TEST(TextService, CancelEndsOnceAndDropsWhatFollows) {
  Rig rig;
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
  Rig rig;
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
    Rig rig;
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
  Rig rig;
  ASSERT_TRUE(rig.Start(Ask("x")).ok());
  rig.Give({}, FinishReason::kError);
  EXPECT_THAT(rig.sink->deltas(), IsEmpty());
  EXPECT_EQ(rig.sink->end()->status.code(), StatusCode::kInternal);
}

// A row that failed says why in the engine's words.
TEST(TextService, ErrorKeepsTheEnginesWords) {
  Rig rig;
  ASSERT_TRUE(rig.Start(Ask("x")).ok());
  SequenceOutput output{.finish = FinishReason::kError, .status = Internal("row 3 is not finite")};
  rig.engine.Deliver(rig.id(), std::move(output));
  EXPECT_EQ(Message(rig.sink->end()->status), "row 3 is not finite");
}

TEST(TextService, ChatGoesThroughTheTemplate) {
  Rig rig;
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
  Rig rig;
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
  Rig rig;
  TextCall call = Ask("<|im_end|>");
  ASSERT_TRUE(rig.Start(call).ok());
  call.encoding.parse_control_tokens = true;
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_EQ(rig.engine.submitted()[0].prompt.size(), 10u);
  EXPECT_THAT(rig.engine.submitted()[1].prompt, ElementsAre(kEnd));
}

// CHT-03: one BOS for a text, none beside a template's own.
TEST(TextService, BosOnceForTextNeverForChat) {
  Rig rig({.manual = true}, std::make_shared<ByteTokenizer>(/*adds_bos=*/true));
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
    Rig rig;
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
    Rig rig(options);
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
  Rig rig;
  EXPECT_EQ(FieldOf(rig.Start(Ask(""))), "prompt");
  Rig with_bos({.manual = true}, std::make_shared<ByteTokenizer>(/*adds_bos=*/true));
  EXPECT_TRUE(with_bos.Start(Ask("")).ok());
}

TEST(TextService, RefusesWhileNotReady) {
  Rig rig;
  rig.engine.SetReadiness({.ready = false, .reason = "no step for 5 s"});
  const Status status = rig.Start(Ask("hi"));
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no step for 5 s"));
}

TEST(TextService, UnknownModelIsNotFound) {
  Rig rig;
  TextCall call = Ask("hi");
  call.model = "alias";
  EXPECT_TRUE(rig.Start(call).ok());
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
  Rig rig({.manual = true, .running_max = 1, .queue_max = 0});
  ASSERT_TRUE(rig.Start(Ask("a")).ok());
  EXPECT_FALSE(rig.Start(Ask("b")).ok());
  EXPECT_FALSE(rig.Start(Ask("")).ok());
  rig.service->CountRefused();
  EXPECT_EQ(rig.service->Stats().requests_refused, 3u);
}

TEST(TextService, DeadlineIsOnTheEnginesClock) {
  Rig rig;
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

TEST(TextService, LongTextsRunOnAnotherThread) {
  Rig rig;
  const std::thread::id here = std::this_thread::get_id();
  std::promise<std::thread::id> there;
  ASSERT_TRUE(rig.service->Run(10, [&] { there.set_value(std::this_thread::get_id()); }).ok());
  EXPECT_EQ(there.get_future().get(), here);
  there = {};
  ASSERT_TRUE(rig.service->Run(1 << 20, [&] { there.set_value(std::this_thread::get_id()); }).ok());
  EXPECT_NE(there.get_future().get(), here);
}

TEST(TextService, LongTextsBeyondTheBoundAreRefused) {
  FakeEngine engine({.manual = true});
  SteadyClock clock;
  auto service =
      TextService::Create({.queue_max = 1},
                          {.names = {"m"}, .tokenizer = std::make_shared<ByteTokenizer>()}, engine,
                          clock)
          .value();
  std::promise<void> started;
  std::promise<void> release;
  ASSERT_TRUE(service
                  ->Run(1 << 20,
                        [&] {
                          started.set_value();
                          release.get_future().wait();
                        })
                  .ok());
  started.get_future().wait();
  ASSERT_TRUE(service->Run(1 << 20, [] {}).ok());
  EXPECT_EQ(service->Run(1 << 20, [] {}).code(), StatusCode::kResourceExhausted);
  release.set_value();
}

TEST(TextService, TokenizeAndDetokenize) {
  Rig rig;
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
  Rig rig(options);
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

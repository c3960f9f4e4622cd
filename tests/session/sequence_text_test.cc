// The text of sequences, through TextService: stop strings, characters in pieces, echo, logprobs.
// Names of cases are those of the field-case catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/manual_rig.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

// STP-01, STP-05: nothing of a stop string leaves; the engine is told; late tokens are dropped.
TEST(SequenceText, StopStringEndsTheSequenceAtOnce) {
  ManualRig rig;
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
TEST(SequenceText, HeldTextComesWhenItCannotBeAStop) {
  ManualRig rig;
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

TEST(SequenceText, HeldTextComesAtTheLengthLimit) {
  ManualRig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"assistant"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("pleas"), FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "pleas");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kLength));
}

// A stop string that ends with the last token that the length allows is a stop.
TEST(SequenceText, StopStringWinsOverLength) {
  ManualRig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"END"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("aEND"), FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "a");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kStop));
  EXPECT_THAT(rig.engine.stops(), IsEmpty());  // it has ended by itself
}

// STP-04: only what may still become a stop is held.
TEST(SequenceText, LongStopStringHoldsNothingBack) {
  ManualRig rig;
  TextCall call = Ask("x");
  call.stop.strings = {std::string(500, 'Z')};
  ASSERT_TRUE(rig.Start(call).ok());
  for (const char c : std::string("hello")) rig.Give({c});
  EXPECT_EQ(rig.sink->deltas().size(), 5u);
  EXPECT_EQ(rig.sink->Text(), "hello");
}

// STP-05: the cut is at a character, inside a token; the token counts once.
TEST(SequenceText, StopInsideOfATokenCutsIt) {
  struct Case {
    std::string stop;
    TokenId token;
    std::string text;
  };
  for (const Case& test :
       {Case{"..", ByteTokenizer::kDots, ""}, Case{"stop", ByteTokenizer::kStopBang, ""},
        Case{".", ByteTokenizer::kADotB, " a"}}) {
    ManualRig rig;
    TextCall call = Ask("x");
    call.stop.strings = {test.stop};
    ASSERT_TRUE(rig.Start(call).ok());
    rig.Give({test.token});
    EXPECT_EQ(rig.sink->Text(), test.text);
    EXPECT_EQ(rig.sink->end()->usage.output_tokens, 1);
  }
}

// STP-06: bytes, not characters, and no normalisation.
TEST(SequenceText, StopStringAcrossTheBytesOfACharacter) {
  for (const std::string stop : {"\xC3\xA9", "\xF0\x9F\x98\x80"}) {
    ManualRig rig;
    TextCall call = Ask("x");
    call.stop.strings = {stop};
    ASSERT_TRUE(rig.Start(call).ok());
    for (const TokenId id : Bytes("a" + stop)) rig.Give({id});
    EXPECT_EQ(rig.sink->Text(), "a");
    EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kStop));
  }
  ManualRig rig;
  TextCall call = Ask("x");
  call.stop.strings = {"e\xCC\x81"};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("\xC3\xA9"), FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "\xC3\xA9");
  EXPECT_THAT(rig.sink->Finishes(), ElementsAre(FinishReason::kLength));
}

TEST(SequenceText, IncludeStopKeepsStopStringsAndEndTokens) {
  ManualRig rig;
  TextCall call = Ask("x");
  call.stop = {.strings = {"END"}, .include_in_text = true};
  ASSERT_TRUE(rig.Start(call).ok());
  rig.Give(Bytes("aENDb"));
  EXPECT_EQ(rig.sink->Text(), "aEND");

  ManualRig other;
  call.skip_control = false;
  ASSERT_TRUE(other.Start(call).ok());
  other.Give({'a', kEnd}, FinishReason::kStop);
  EXPECT_EQ(other.sink->Text(), "a<|im_end|>");
}

// A token of stop_token_ids ends the text before itself, whether or not it is a control token.
TEST(SequenceText, StopTokenGivesNoText) {
  ManualRig rig;
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
TEST(SequenceText, IgnoreEosKeepsStopTokenIds) {
  ManualRig rig;
  TextCall call = Ask("x");
  call.stop = {.token_ids = {7}, .ignore_eos = true};
  ASSERT_TRUE(rig.Start(call).ok());
  EXPECT_THAT(rig.engine.submitted()[0].end_token_ids, ElementsAre(7));
  rig.Give({'a', kEnd, 'b'}, FinishReason::kLength);
  EXPECT_EQ(rig.sink->Text(), "ab");
}

// STP-12: stop strings are not looked for before min_tokens.
TEST(SequenceText, StopStringsWaitForMinTokens) {
  ManualRig rig;
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
TEST(SequenceText, CharactersLeaveWhole) {
  ManualRig rig;
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
TEST(SequenceText, SequencesDoNotMixTheirBytes) {
  ManualRig rig;
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

TEST(SequenceText, EchoGivesThePromptFirst) {
  ManualRig rig;
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
TEST(SequenceText, EchoOfTokenIdsIsTheirText) {
  ManualRig rig;
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
TEST(SequenceText, EchoWithLogprobsCoversThePrompt) {
  ManualRig rig;
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
TEST(SequenceText, EchoWithoutOutput) {
  ManualRig rig;
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

TEST(SequenceText, FailureOfAScoringCallIsAFailure) {
  ManualRig rig;
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
TEST(SequenceText, LogprobsComeWithTheirToken) {
  ManualRig rig;
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

}  // namespace
}  // namespace polysil

#include "session/sequence_text.h"

#include <algorithm>
#include <utility>

namespace polysil {

int64_t CodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

SequenceText::SequenceText(const SequenceTextPlan& plan, const PromptText& prompt,
                           int32_t prompt_index, int32_t sequence_index)
    : plan_(plan),
      prompt_(prompt),
      prompt_index_(prompt_index),
      sequence_index_(sequence_index),
      detokenizer_(plan.tokenizer, plan.skip_control, /*after_text=*/true),
      stops_(plan.stop_strings, plan.include_stop),
      text_offset_(prompt.code_points) {}

std::optional<TextDelta> SequenceText::Push(SequenceOutput output) {
  if (finished_) return std::nullopt;
  prompt_tokens_cached_ = std::max<int64_t>(prompt_tokens_cached_, output.prompt_tokens_cached);
  const bool first = !std::exchange(started_, true);
  TextDelta delta = first ? FirstDelta(std::move(output.prompt_logprobs)) : TextDelta{};
  delta.prompt_index = prompt_index_;
  delta.sequence_index = sequence_index_;

  if (plan_.discard_output) {
    const bool stopped = output.finish == FinishReason::kStop;
    const FinishReason reason = output.finish && !stopped ? *output.finish : FinishReason::kLength;
    if (!output.tokens.empty() || output.finish) Finish(reason, delta);
  } else {
    for (OutputToken& token : output.tokens) {
      if (finished_) break;
      PushToken(std::move(token), delta);
    }
    if (output.finish && !finished_) Finish(*output.finish, delta);
  }
  const bool says_nothing = delta.text.empty() && delta.tokens.empty() && !delta.finish;
  // The first one tells that the sequence has begun, unless it has failed before it did.
  if (says_nothing && (!first || finished_)) return std::nullopt;
  return delta;
}

TextDelta SequenceText::FirstDelta(std::vector<TokenLogprobs> prompt_logprobs) const {
  TextDelta delta;
  delta.prompt_ids = prompt_.ids;
  if (plan_.echo) delta.echo.text = prompt_.text;
  if (plan_.echo && plan_.logprobs) delta.echo.tokens = PromptTokens(std::move(prompt_logprobs));
  return delta;
}

// Entry i of `logprobs` belongs to token i + 1: nothing precedes the first.
std::vector<TextToken> SequenceText::PromptTokens(std::vector<TokenLogprobs> logprobs) const {
  Detokenizer detokenizer(plan_.tokenizer, plan_.skip_control, /*after_text=*/false);
  std::vector<TextToken> tokens;
  tokens.reserve(prompt_.ids->size());
  int64_t offset = 0;
  for (size_t i = 0; i < prompt_.ids->size(); ++i) {
    std::optional<TokenLogprobs> logprob;
    if (i > 0 && i - 1 < logprobs.size()) logprob = std::move(logprobs[i - 1]);
    tokens.push_back(
        MakeToken((*prompt_.ids)[i], std::min(offset, prompt_.code_points), std::move(logprob)));
    offset += CodePoints(detokenizer.Push((*prompt_.ids)[i]));
  }
  return tokens;
}

TextToken SequenceText::MakeToken(TokenId id, int64_t offset,
                                  std::optional<TokenLogprobs> logprobs) const {
  const auto bytes = [this](TokenId token) {
    return std::string(plan_.tokenizer->TokenBytes(token));
  };
  TextToken token{.id = id, .text_offset = offset};
  if (plan_.logprobs) token.bytes = bytes(id);
  if (!logprobs) return token;
  token.logprob = logprobs->chosen.logprob;
  token.top.reserve(logprobs->top.size());
  for (const TokenLogprob& top : logprobs->top) {
    token.top.push_back({top.id, top.logprob, bytes(top.id)});
  }
  return token;
}

void SequenceText::PushToken(OutputToken token, TextDelta& delta) {
  ++output_tokens_;
  delta.tokens.push_back(MakeToken(token.id, text_offset_, std::move(token.logprobs)));
  // An end token always ends the sequence; its text is not part of the answer.
  const bool is_end =
      std::binary_search(plan_.end_token_ids.begin(), plan_.end_token_ids.end(), token.id);
  if (is_end && !plan_.include_stop) return;
  std::string text = detokenizer_.Push(token.id);
  text_offset_ += CodePoints(text);
  delta.text += Emit(std::move(text));
  if (stops_.matched()) Finish(FinishReason::kStop, delta);
}

void SequenceText::Finish(FinishReason reason, TextDelta& delta) {
  finished_ = true;
  if (reason != FinishReason::kStop && reason != FinishReason::kLength) return;
  if (!stops_.matched() && !plan_.discard_output) {
    delta.text += Emit(detokenizer_.Flush());
    if (!stops_.matched()) delta.text += stops_.Flush();
  }
  if (stops_.matched()) delta.stop_string = stops_.matched_stop();
  delta.finish = stops_.matched() ? FinishReason::kStop : reason;
}

std::string SequenceText::Emit(std::string text) {
  if (output_tokens_ <= plan_.tokens_min) return text;
  return stops_.Push(text);
}

}  // namespace polysil

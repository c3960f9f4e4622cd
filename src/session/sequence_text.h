// SequenceText: the text side of one sequence: detokenizer, stop strings, offsets, counts. Turns
// the engine's outputs into deltas. Ends itself at a stop string; what comes later is dropped.
// Owned by a TextStream, used under its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/engine/engine.h"
#include "session/text_call.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace polysil {

// Code points of valid UTF-8.
int64_t CodePoints(std::string_view text);

// What the sequences of one call have in common.
struct SequenceTextPlan {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<TokenId> end_token_ids;  // as the engine has them: sorted
  std::vector<std::string> stop_strings;
  bool include_stop = false;
  bool skip_control = true;
  bool echo = false;
  bool discard_output = false;  // max_tokens 0: the prompt is all that was asked for
  bool logprobs = false;
  int32_t tokens_min = 0;  // stop strings are looked for after so many tokens
};

// One prompt, as its sequences need it.
struct PromptText {
  std::shared_ptr<const std::vector<TokenId>> ids;
  std::string text;         // where echo or logprobs want it, else empty
  int64_t code_points = 0;  // of text
};

class SequenceText final {
 public:
  // `plan` and `prompt` outlive it.
  SequenceText(const SequenceTextPlan& plan, const PromptText& prompt, int32_t prompt_index,
               int32_t sequence_index);

  // What is new; nothing if no one needs to know. Its `finish` is kStop or kLength only: the other
  // ends are the call's.
  std::optional<TextDelta> Push(SequenceOutput output);

  // Had its last delta.
  bool finished() const { return finished_; }
  // Ended by a stop string, which the engine does not know of.
  bool stopped_by_string() const { return stops_.matched(); }
  int64_t output_tokens() const { return output_tokens_; }
  int64_t prompt_tokens_cached() const { return prompt_tokens_cached_; }

 private:
  TextDelta FirstDelta(std::vector<TokenLogprobs> prompt_logprobs) const;
  std::vector<TextToken> PromptTokens(std::vector<TokenLogprobs> logprobs) const;
  TextToken MakeToken(TokenId id, int64_t offset, std::optional<TokenLogprobs> logprobs) const;
  void PushToken(OutputToken token, TextDelta& delta);
  void Finish(FinishReason reason, TextDelta& delta);
  std::string Emit(std::string text);

  const SequenceTextPlan& plan_;
  const PromptText& prompt_;
  const int32_t prompt_index_;
  const int32_t sequence_index_;
  Detokenizer detokenizer_;
  StopMatcher stops_;
  bool started_ = false;
  bool finished_ = false;
  int64_t output_tokens_ = 0;
  int64_t prompt_tokens_cached_ = 0;
  int64_t text_offset_ = 0;  // code points of prompt and output so far
};

}  // namespace polysil

// TextCall: what a client of any face asks for, after its wire form is read and before it is
// checked. TextDelta, TextEnd: what comes back. Values; they know no HTTP, JSON text, protobuf or
// engine ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/sampling_params.h"
#include "polysil/engine/engine.h"
#include "session/tenant.h"
#include "text/chat_template.h"

namespace polysil {

class CallLedger;

// Text, token ids as they are, or a conversation for the model's chat template.
using TextPrompt = std::variant<std::string, std::vector<TokenId>, ChatInput>;

// How a text prompt becomes tokens. Says nothing about token ids and conversations.
struct PromptEncoding {
  bool add_bos = true;                // where the model wants one
  bool parse_control_tokens = false;  // "<|im_end|>" in the text becomes that token
};

// When an output ends besides its length.
struct StopRules {
  std::vector<std::string> strings;  // at most TextLimits::stops_max, none empty
  std::vector<TokenId> token_ids;    // as well as the model's end tokens
  bool ignore_eos = false;           // the model's end tokens do not end it; token_ids still do
  bool include_in_text = false;      // the stop string or end token stays in the text
};

// Keep the KV of the prompt's beginning for so long after its last use.
struct KeepPrefix {
  std::optional<int32_t> tokens;  // absent: the whole prompt
  double seconds = 0.0;           // (0, a day]
};

// Field names in errors are those of the OpenAI API, which the proto shares: "max_tokens".
struct TextCall {
  std::optional<std::string> model;  // absent: the one that is served
  std::vector<TextPrompt> prompts;   // at least one; they are accepted or refused together
  PromptEncoding encoding;
  SamplingParams sampling;            // seed, tokens_max and prompt_logprobs are set from below
  std::optional<uint64_t> seed;       // absent: a random one
  std::optional<int32_t> tokens_max;  // absent or too many: to the end of the context. 0 with echo
  StopRules stop;
  std::vector<KeepPrefix> keep;  // "cache_retention"; at most kRetentionHintsMax
  int64_t sequences = 1;         // n, for each prompt
  int64_t priority = 0;          // higher is served first; within TextLimits
  bool echo = false;  // the prompt's text comes first, its logprobs too where those are asked
  bool skip_control = true;           // control tokens give no text
  std::optional<int64_t> timeout_ns;  // since the ledger was opened; without one: since Start
  Caller caller;
  std::shared_ptr<CallLedger> ledger;  // keeps the account of this call; null: nobody does
};

// One alternative at a position.
struct TextLogprob {
  TokenId id = 0;
  float logprob = 0.0F;
  std::string bytes;  // of this token alone; perhaps not UTF-8
};

struct TextToken {
  TokenId id = 0;
  int64_t text_offset = 0;       // code points before it, counted from the start of the prompt
  std::string bytes;             // of this token alone, where logprobs are asked; perhaps not UTF-8
  std::optional<float> logprob;  // absent where not asked, and for a prompt's first token
  std::vector<TextLogprob> top;  // best first
};

// Comes with the first delta of a sequence where the call asks for echo or logprobs of it.
struct TextPromptEcho {
  std::string text;               // empty without echo
  std::vector<TextToken> tokens;  // only with echo and logprobs
};

// Some news of one sequence. Those of one sequence come in order; the last has `finish` set.
struct TextDelta {
  int32_t prompt_index = 0;
  int32_t sequence_index = 0;                              // 0 .. n - 1
  std::shared_ptr<const std::vector<TokenId>> prompt_ids;  // with the first delta of a sequence
  TextPromptEcho echo;
  std::string text;                    // valid UTF-8; may be empty while tokens wait for their text
  std::vector<TextToken> tokens;       // those that this delta accounts for; an end token is one
  std::optional<FinishReason> finish;  // kStop or kLength; other ends are TextEnd::status
  std::string stop_string;             // the one that matched, with kStop
};

struct TextUsage {
  int64_t prompt_tokens = 0;         // each prompt once, however many sequences it has
  int64_t prompt_tokens_cached = 0;  // of those, taken from the prefix cache
  int64_t output_tokens = 0;  // of all sequences; end tokens count, those after a stop do not
};

struct TextEnd {
  Status status;  // OK: every sequence had its `finish`
  TextUsage usage;
};

// Receives the news of one call, one at a time, on the engine's output thread (or inside Start).
// Must not block.
class TextSink {
 public:
  virtual ~TextSink() = default;
  virtual void OnDelta(TextDelta delta) = 0;
  // Once, last.
  virtual void OnEnd(TextEnd end) = 0;
};

// The request field that a refusal is about, as "messages[1].role"; rides on a Status.
Status WithField(Status status, std::string_view field);
std::string FieldOf(const Status& status);  // empty: none
// A word for programs, as "context_length_exceeded"; likewise.
Status WithReason(Status status, std::string_view reason);
std::string ReasonOf(const Status& status);

}  // namespace polysil

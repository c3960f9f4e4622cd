// Text deltas as OpenAI's answers: one object, or chunks of an event stream. Pure text building;
// one per call, used on one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/openai_call.h"
#include "session/call_ledger.h"
#include "session/text_call.h"

namespace polysil {

class JsonWriter;

struct ReplyIdentity {
  std::string id;         // "chatcmpl-...", "cmpl-..."
  int64_t created_s = 0;  // Unix time
  std::string model;
};

// A token of a logprobs list: its text, or its bytes in hex where they are no UTF-8 alone. Chat
// writes
// "\xf0\x9f", completions "bytes:\xf0\x9f", as OpenAI does.
std::string TokenLabel(std::string_view bytes, bool chat);

class OpenAiReply final {
 public:
  // `sequences`: n, of each prompt.
  OpenAiReply(AnswerForm form, ReplyIdentity identity, int32_t sequences);

  // Streaming: the events of this delta, if it shows anything.
  std::string Events(const TextDelta& delta);
  // Streaming: usage where asked, and the end mark.
  std::string LastEvents(const TextUsage& usage, const CallLatency& latency) const;
  // Not streaming: keep for Whole.
  void Collect(TextDelta delta);
  std::string Whole(const TextUsage& usage, const CallLatency& latency) const;

 private:
  struct Choice {
    bool started = false;  // streaming: has had its first event
    std::string text;
    std::vector<TextToken> tokens;  // with the prompt's first where echo shows them
    std::vector<TokenId> token_ids;
    std::shared_ptr<const std::vector<TokenId>> prompt_ids;
    FinishReason finish = FinishReason::kStop;
  };
  // What one event shows of a choice.
  struct ChunkParts {
    std::string_view text;
    std::span<const TextToken> tokens;  // with logprobs; empty: none are shown
    std::span<const TokenId> token_ids;
    std::span<const TokenId> prompt_ids;
    bool role = false;
    std::optional<FinishReason> finish;
  };

  size_t ChoiceIndex(const TextDelta& delta) const;
  Choice& ChoiceAt(size_t index);
  // Opens the object and writes what all answers of a call share.
  void BeginAnswer(JsonWriter& json, bool chunk) const;
  void AppendEvent(size_t index, const ChunkParts& parts, std::string& out) const;
  void WriteChunkChoice(JsonWriter& json, size_t index, const ChunkParts& parts) const;
  void WriteWholeChoice(JsonWriter& json, size_t index) const;
  void WriteUsage(JsonWriter& json, const TextUsage& usage, const CallLatency& latency) const;

  const AnswerForm form_;
  const ReplyIdentity identity_;
  const int32_t sequences_;
  std::vector<Choice> choices_;  // as far as there was news of them
};

}  // namespace polysil

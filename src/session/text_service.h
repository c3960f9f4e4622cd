// TextService: text in, text out, over an Engine. The one path that every face takes: validation,
// chat template, tokenizer, submission, detokenizer, stop strings, usage. Not a face: it knows no
// HTTP, JSON text or protobuf. Owned by the daemon; outlives the faces and is outlived by the
// engine. All methods are thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "polysil/base/clock.h"
#include "polysil/base/status.h"
#include "polysil/engine/engine.h"
#include "session/call_ledger.h"
#include "session/tenant.h"
#include "session/text_call.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace polysil {

class TextPool;
struct PromptText;
struct SequenceTextPlan;

// Bounds of one call, beyond the engine's.
struct TextLimits {
  int32_t prompts_max = 128;      // prompts of one call
  int32_t sequences_max = 128;    // prompts * n
  int32_t stops_max = 16;         // stop strings
  int32_t stop_bytes_max = 1024;  // of each
  int32_t stop_token_ids_max = 128;
  int32_t logit_bias_max = 1024;
  int32_t logprobs_max = 20;
  int32_t text_bytes_max = 16 * 1024 * 1024;  // that Detokenize gives
  // Anybody can write one, so by default a call may only stand back behind others.
  int32_t priority_min = -100;
  int32_t priority_max = 0;
};

// The model as text: what TextService needs beside the engine.
struct TextModel {
  std::vector<std::string>
      names;  // as clients give them in "model"; the first is the one we report
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: chat is refused
  std::shared_ptr<const ChatTemplate> tool_template;  // for calls with tools; null: chat_template
  std::string chat_template_missing;   // why chat_template is null; empty: the model ships none
  std::vector<TokenId> end_token_ids;  // besides Tokenizer::end_ids (generation_config.json)
};

struct TextServiceOptions {
  TextLimits limits;
  int32_t threads = 2;                  // "text-0", ...: for texts too long for a face's thread
  int32_t queue_max = 64;               // long texts that may wait for them
  size_t inline_bytes_max = 32 * 1024;  // shorter ones are done on the caller's thread
  TenantSource tenants = TenantSource::kNone;
  std::function<uint64_t()> seed_source;  // for calls without a seed; empty: from the system
};

// A call that runs. Dropping it does not end the call.
class TextCallHandle {
 public:
  virtual ~TextCallHandle() = default;
  // The client is gone: ends all sequences, drops their tokens. The sink still gets OnEnd
  // (CANCELLED), unless it had it. From any thread, also from within the sink; may be repeated.
  virtual void Cancel() = 0;
};

struct TokenizedText {
  std::vector<TokenId> ids;
  std::vector<std::string> tokens;  // the bytes of each
};

class TextService final {
 public:
  // INVALID_ARGUMENT: no name, no tokenizer, an end token outside the vocabulary.
  static StatusOr<std::unique_ptr<TextService>> Create(TextServiceOptions options, TextModel model,
                                                       Engine& engine, const Clock& clock);
  ~TextService();
  TextService(const TextService&) = delete;
  TextService& operator=(const TextService&) = delete;

  // Runs `task` here if it is about a short text, else on a thread of its own, tenants in turn.
  // RESOURCE_EXHAUSTED: too many wait. UNAVAILABLE: draining. INVALID_ARGUMENT: see TenantOf.
  // Start, Tokenize and Detokenize take time linear in their text: call them in here.
  Status Run(size_t text_bytes, const Caller& caller, std::function<void()> task);
  // Refuses what comes from now on.
  void Drain() { draining_ = true; }
  // Waits until all that was given to Run is done, at most so long. True if so.
  bool WaitIdle(int64_t timeout_ns) const;

  // The account of a call that began `age_ns` ago. `id` is what the log calls it by, and must be
  // safe there; empty: one of ours. The face puts it into the TextCall, tells it what the face
  // alone knows, and closes it.
  std::shared_ptr<CallLedger> OpenLedger(int64_t age_ns, std::string id);
  // Of all calls whose ledger was closed.
  LatencyTotals::Histograms LatencyHistograms() const { return latency_totals_->Read(); }

  // Checks, tokenises and submits all prompts, or none. Not OK: the sink is never called; the codes
  // are those of Engine::Submit, NOT_FOUND for the model, FieldOf names the field.
  StatusOr<std::shared_ptr<TextCallHandle>> Start(TextCall call, std::shared_ptr<TextSink> sink);

  StatusOr<std::vector<TokenId>> Tokenize(const TextPrompt& prompt,
                                          const PromptEncoding& encoding) const;
  StatusOr<std::string> Detokenize(std::span<const TokenId> ids, bool skip_control) const;
  // Bytes of one token; empty outside the vocabulary.
  std::string TokenBytes(TokenId id) const;
  // NOT_FOUND with reason "model_not_found" where `model` is not a name of the served one.
  Status CheckModel(const std::string& model) const;

  const TextModel& model() const { return model_; }
  const EngineInfo& engine_info() const;
  const TextLimits& limits() const { return options_.limits; }
  // The engine's, with calls that were refused before they reached it.
  EngineStats Stats() const;
  EngineReadiness Readiness() const;
  // When a call that failed so may be tried again: where it was too much for now, or the service is
  // not ready. None where trying again is of no use.
  std::optional<int32_t> RetryAfterSeconds(const Status& status) const;
  // See Engine.
  KvEventBatch ReadKvEvents(uint64_t from, int32_t events_max) const;
  uint64_t WaitKvEvent(uint64_t number, int64_t timeout_ns) const;
  // A generation call that a face refused before Start.
  void CountRefused() { refused_.fetch_add(1, std::memory_order_relaxed); }

 private:
  TextService(TextServiceOptions options, TextModel model, Engine& engine, const Clock& clock);
  // On the clock; 0: none.
  int64_t DeadlineNs(const TextCall& call) const;
  // One for each prompt, all of them valid for the engine.
  StatusOr<std::vector<PromptText>> CheckAndTokenize(const TextCall& call,
                                                     int64_t deadline_ns) const;
  // But for the deadline and whose it is.
  Request RequestOf(const TextCall& call, const SequenceTextPlan& plan,
                    const std::vector<TokenId>& ids) const;

  const TextServiceOptions options_;
  const TextModel model_;
  Engine& engine_;
  const Clock& clock_;
  std::vector<TokenId> end_ids_;  // of the tokenizer and the model, sorted
  std::atomic<bool> draining_ = false;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> ledgers_opened_ = 0;
  const std::shared_ptr<LatencyTotals> latency_totals_ = std::make_shared<LatencyTotals>();
  std::unique_ptr<TextPool> pool_;
};

}  // namespace polysil

// TextStream: one running call: its requests at the engine and the text of its sequences. Takes the
// engine's outputs on the output thread, gives deltas to the call's sink, ends exactly once. Kept
// alive by the engine's sinks; TextService makes it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/engine/engine.h"
#include "session/call_ledger.h"
#include "session/sequence_text.h"
#include "session/text_call.h"
#include "session/text_service.h"

namespace polysil {

class TextStream final : public TextCallHandle, public std::enable_shared_from_this<TextStream> {
 public:
  TextStream(Engine& engine, SequenceTextPlan plan, std::vector<PromptText> prompts,
             int32_t sequences, std::shared_ptr<TextSink> sink, std::shared_ptr<CallLedger> ledger);

  // Submits one request for each prompt. If one is refused, the others are cancelled and the sink
  // is never called.
  Status Submit(std::vector<Request> requests);

  void Cancel() override;

 private:
  class PromptSink;
  // Calls to the engine, made after the lock is released.
  struct EngineCalls {
    std::vector<std::pair<RequestId, int32_t>> stops;
    bool cancel_all = false;
  };
  enum class Phase { kSubmitting, kRunning, kEnded };

  void OnOutput(size_t prompt_index, SequenceOutput output);
  void Deliver(size_t prompt_index, SequenceOutput output, EngineCalls& calls);
  void End(Status status, const SequenceLatency& latency);
  void Make(const EngineCalls& calls);
  TextUsage Usage() const;
  SequenceText& sequence(size_t prompt_index, int32_t sequence_index) {
    return sequences_[prompt_index * static_cast<size_t>(sequences_per_prompt_) +
                      static_cast<size_t>(sequence_index)];
  }

  Engine& engine_;
  const SequenceTextPlan plan_;
  const std::vector<PromptText> prompts_;
  const int32_t sequences_per_prompt_;
  const std::shared_ptr<CallLedger> ledger_;  // may be null
  std::atomic<bool> cancelled_ = false;
  std::vector<RequestId> request_ids_;  // by prompt; complete before phase_ leaves kSubmitting

  std::mutex
      mutex_;  // guards what follows; held while the sink is called, so that news are in order
  Phase phase_ = Phase::kSubmitting;
  std::vector<std::pair<size_t, SequenceOutput>> early_;  // came before all prompts were accepted
  std::vector<SequenceText> sequences_;
  size_t sequences_unfinished_ = 0;
  bool had_token_ = false;
  std::shared_ptr<TextSink> sink_;  // null after the end
};

}  // namespace polysil

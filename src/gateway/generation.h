// Generation: one completion or chat call between its HTTP exchange and the text service. Deltas
// come on the engine's output thread and are written on the connection's; headers leave with the
// first delta, so that a call that fails before has its true status. Owned by the call's running
// parts.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gateway/exchange.h"
#include "gateway/openai_call.h"
#include "gateway/openai_reply.h"
#include "session/call_ledger.h"
#include "session/text_call.h"
#include "session/text_service.h"

namespace polysil {

class Generation final : public TextSink, public std::enable_shared_from_this<Generation> {
 public:
  // The call comes with its ledger.
  Generation(TextService& service, std::shared_ptr<Exchange> exchange, OpenAiCall call,
             ReplyIdentity identity);

  // Starts the call; from any thread. Answers the exchange in the end, whatever happens.
  void Start();
  // The client is gone. From any thread, at any time.
  void Cancel();

  void OnDelta(TextDelta delta) override;
  void OnEnd(TextEnd end) override;

 private:
  void PostDrain();
  // On the connection's thread:
  void Drain();
  void Write(std::vector<TextDelta> deltas);
  void Finish(const TextEnd& end);
  void Fail(const Status& status);
  // When the answer is out.
  void CloseLedger();

  TextService& service_;
  const std::shared_ptr<Exchange> exchange_;
  TextCall call_;
  const std::shared_ptr<CallLedger> ledger_;
  const AnswerForm form_;
  OpenAiReply reply_;          // connection's thread
  bool stream_begun_ = false;  // connection's thread

  std::mutex mutex_;  // guards what follows
  std::vector<TextDelta> deltas_;
  std::optional<TextEnd> end_;
  bool drain_posted_ = false;
  bool gone_ = false;
  std::shared_ptr<TextCallHandle> handle_;
};

}  // namespace polysil

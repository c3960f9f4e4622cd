// GenerateStream: one Generate call between its gRPC reactor and the text service. Deltas come on
// the engine's output thread and wait here, bounded, for the client to take them; a client that
// falls too far behind, or goes, is cancelled at once.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "polysil/v1/inference.pb.h"
#include "session/call_ledger.h"
#include "session/text_call.h"
#include "session/text_service.h"

namespace polysil {

class GenerateStream final : public TextSink, public std::enable_shared_from_this<GenerateStream> {
 public:
  // The reactor for the library, which it deletes itself; `request` and `context` are valid until
  // then.
  static grpc::ServerWriteReactor<v1::GenerateResponse>* Start(TextService& service,
                                                               grpc::CallbackServerContext* context,
                                                               const v1::GenerateRequest* request,
                                                               size_t output_bytes_max);

  GenerateStream(TextService& service, const v1::GenerateRequest& request, size_t output_bytes_max);

  void OnDelta(TextDelta delta) override;
  void OnEnd(TextEnd end) override;

 private:
  class Reactor;
  // What the reactor is to do next, decided under the lock and done after it.
  enum class Step { kNothing, kWrite, kFinish };

  void Submit(TextCall call);
  void Enqueue(v1::GenerateResponse response);
  void EndWith(Status status);
  void Advance();
  Step NextStep();
  void Cancel();
  void OnWritten(bool ok);

  TextService& service_;
  const std::chrono::steady_clock::time_point begun_;
  const size_t output_bytes_max_;
  v1::GenerateRequest form_;            // what of the request shapes its answer
  std::shared_ptr<CallLedger> ledger_;  // set before anything else happens

  std::mutex mutex_;            // guards what follows
  Reactor* reactor_ = nullptr;  // until it is told to finish
  std::shared_ptr<TextCallHandle> handle_;
  std::deque<v1::GenerateResponse> queue_;  // the front one is being written if writing_
  size_t queue_bytes_ = 0;
  bool writing_ = false;
  bool gone_ = false;  // the client, or its patience
  std::optional<Status> end_;
};

}  // namespace polysil

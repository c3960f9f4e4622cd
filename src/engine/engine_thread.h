// EngineThread: the Engine of one replica. Puts a thread, a clock and an Executor around
// EngineCore. It decides nothing itself: what runs, and how a request ends, is EngineCore's.
//
// Threads: "engine" owns the core and alone calls the executor; "output" calls the sinks. The
// methods of Engine may be called from any thread and never wait for the device or for a sink.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine_options.h"
#include "polysil/base/clock.h"
#include "polysil/base/status.h"
#include "polysil/engine/engine.h"
#include "polysil/exec/executor.h"

namespace polysil {

class EngineThread final : public Engine {
 public:
  // Starts both threads. INVALID_ARGUMENT where the options, the model's limits or the executor's
  // StepLimits contradict each other. `clock` must outlive the engine.
  static StatusOr<std::unique_ptr<EngineThread>> Create(const EngineOptions& options,
                                                        const ModelLimits& model,
                                                        std::unique_ptr<Executor> executor,
                                                        const Clock& clock);
  // Ends what is left with kCancelled, hands every final output to its sink, joins both threads.
  ~EngineThread() override;
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  const EngineInfo& info() const override;
  StatusOr<RequestId> Submit(Request request, std::shared_ptr<OutputSink> sink) override;
  void Cancel(RequestId id) override;
  void Stop(RequestId id, int32_t sequence_index) override;
  EngineStats Stats() const override;
  EngineReadiness Readiness() const override;
  KvEventBatch ReadKvEvents(uint64_t from, int32_t events_max) const override;
  uint64_t WaitKvEvent(uint64_t number, int64_t timeout_ns) const override;
  int32_t RetryAfterSeconds() const override;

  // Refuses new requests from now on; what is left ends with kCancelled at `deadline_ns` of the
  // clock. Returns at once. A second call may bring the deadline forward (0: now), never put it
  // off.
  void Drain(int64_t deadline_ns);
  // Waits until every accepted request has had its final output, at most `timeout_ns`. True if so.
  bool WaitIdle(int64_t timeout_ns) const;

 private:
  class Runtime;
  explicit EngineThread(std::unique_ptr<Runtime> runtime);

  std::unique_ptr<Runtime> runtime_;
};

}  // namespace polysil

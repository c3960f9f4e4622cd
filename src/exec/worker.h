// Worker: the thread that owns a device. Takes steps from a bounded queue, runs them in order on
// its ModelRunner, and puts the results into another. Neither a failure nor an exception ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/bounded_queue.h"
#include "exec/model_runner.h"
#include "polysil/core/step.h"

namespace polysil {

class Worker final {
 public:
  // Starts the thread under `name` ("worker-0").
  Worker(std::unique_ptr<ModelRunner> runner, std::string name, int32_t steps_in_flight_max);
  // Waits for the steps submitted, whose results are lost.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Called from any one thread. At most steps_in_flight_max may lie between Submit and Poll.
  void Submit(ScheduledStep step);
  std::optional<StepResult> Poll();
  // Called on the worker's thread after each result. Set before the first Submit.
  void SetNotify(std::function<void()> notify);
  // Called on the worker's thread after each operation of a step. Likewise.
  void SetHeartbeat(std::function<void()> beat);

 private:
  void Loop(const std::string& name);

  std::unique_ptr<ModelRunner> runner_;
  BoundedQueue<ScheduledStep> steps_;
  BoundedQueue<StepResult> results_;
  std::function<void()> notify_;  // handed over to the thread by the first push
  std::thread thread_;            // last: it uses the rest
};

}  // namespace polysil

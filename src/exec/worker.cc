#include "exec/worker.h"

#include <utility>

#include "base/thread_name.h"
#include "polysil/base/check.h"

namespace polysil {

Worker::Worker(std::unique_ptr<ModelRunner> runner, std::string name, int32_t steps_in_flight_max)
    : runner_(std::move(runner)),
      steps_(static_cast<size_t>(steps_in_flight_max)),
      results_(static_cast<size_t>(steps_in_flight_max)),
      thread_([this, name = std::move(name)] { Loop(name); }) {}

Worker::~Worker() {
  steps_.Close();
  thread_.join();
}

void Worker::Submit(ScheduledStep step) {
  const int64_t id = step.step_id;
  CHECK(steps_.TryPush(std::move(step)), "step {} exceeds the steps in flight", id);
}

std::optional<StepResult> Worker::Poll() {
  return results_.TryPop();
}

void Worker::SetNotify(std::function<void()> notify) {
  notify_ = std::move(notify);
}

void Worker::SetHeartbeat(std::function<void()> beat) {
  runner_->SetHeartbeat(std::move(beat));
}

void Worker::Loop(const std::string& name) {
  SetThreadName(name);
  while (std::optional<ScheduledStep> step = steps_.Pop()) {
    StepResult result = runner_->Run(*std::move(step));
    CHECK(results_.TryPush(std::move(result)), "results of more steps than may be in flight");
    if (notify_) notify_();
  }
}

}  // namespace polysil

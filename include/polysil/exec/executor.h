// Executor: runs steps on a device, in order, asynchronously. The engine's one view of hardware.
// Submit and Poll are called by the engine thread alone.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "polysil/core/kv_layout.h"
#include "polysil/core/step.h"

namespace polysil {

// What must be equal for two executors to produce identical tokens.
struct NumericClass {
  std::string name;  // kernel family / weights / activations / KV: "cpu/q8/f16"
  friend bool operator==(const NumericClass&, const NumericClass&) = default;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const StepLimits& limits() const = 0;
  virtual const KvLayout& kv_layout() const = 0;
  virtual int32_t kv_blocks() const = 0;
  virtual const NumericClass& numeric_class() const = 0;
  // Takes the step. At most limits().steps_in_flight_max may be submitted and not yet polled.
  virtual void Submit(ScheduledStep step) = 0;
  // The oldest finished step, if any. Never blocks. Each submitted step is answered exactly once.
  virtual std::optional<StepResult> Poll() = 0;
  // Called from any thread whenever Poll may have something new. Set before the first Submit.
  virtual void SetNotify(std::function<void()> notify) = 0;
  // Called from any thread while a step is being worked on, each time some of it is done: whoever
  // has heard nothing for long knows that it is stuck, however long a step may take. Cheap. Set
  // before the first Submit. An executor whose steps are short need not call it.
  virtual void SetHeartbeat(std::function<void()> beat) = 0;
};

}  // namespace polysil

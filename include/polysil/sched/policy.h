// SchedulerPolicy: who is served first. It orders sequences and knows nothing of budgets or blocks.
// Called by the scheduler alone, on the engine thread.
#pragma once

#include <cstdint>

#include "polysil/base/ids.h"

namespace polysil {

// What a policy may look at. Fixed for the life of a sequence.
struct SequenceStanding {
  SequenceId id;  // rises with arrival
  int32_t priority = 0;
};

class SchedulerPolicy {
 public:
  virtual ~SchedulerPolicy() = default;
  // A strict total order: true where `left` gets tokens and blocks before `right`. The last in
  // order is the first to be preempted.
  virtual bool IsBefore(const SequenceStanding& left, const SequenceStanding& right) const = 0;
};

}  // namespace polysil

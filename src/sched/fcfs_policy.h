// FcfsPolicy: higher priority first, then first come first served. A preempted sequence keeps its
// arrival and so comes before all of its priority that have never run.
#pragma once

#include "polysil/sched/policy.h"

namespace polysil {

class FcfsPolicy final : public SchedulerPolicy {
 public:
  bool IsBefore(const SequenceStanding& left, const SequenceStanding& right) const override {
    if (left.priority != right.priority) return left.priority > right.priority;
    return left.id < right.id;
  }
};

}  // namespace polysil

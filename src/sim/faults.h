// Faults: what goes wrong in a simulation, drawn from a seed, until a time from which on nothing
// does. Owned by Simulation.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "polysil/base/clock.h"
#include "polysil/core/step.h"
#include "sim/sim_executor.h"

namespace polysil {

struct FaultRates {
  // For each step.
  double slow_step = 0.0;
  double failed_step = 0.0;
  double failed_row = 0.0;
  double lost_result = 0.0;
  // For each tick: the engine thread runs late, or the clock jumps ahead.
  double pause = 0.0;
  double clock_jump = 0.0;
  int64_t pause_ns = 1'000'000;  // on average
  int64_t jump_ns = 1'000'000'000;
  int64_t until_ns = 0;
};

class Faults final {
 public:
  // `clock` must outlive it.
  Faults(const FaultRates& rates, uint64_t seed, const Clock& clock)
      : rates_(rates), random_(seed), clock_(clock) {}

  StepFault DrawStep(const ScheduledStep& step) {
    StepFault fault;
    if (clock_.NowNs() >= rates_.until_ns) return fault;
    if (random_.Chance(rates_.slow_step)) fault.slowdown = 1.0 + random_.Exponential(10.0);
    if (random_.Chance(rates_.failed_step)) fault.step = Internal("the device failed");
    if (random_.Chance(rates_.failed_row)) {
      fault.rows_failing.push_back(random_.Next() % step.sequences.size());
    }
    fault.lost = random_.Chance(rates_.lost_result);
    return fault;
  }
  // By how much the next tick is late.
  int64_t DrawDelayNs(int64_t now_ns) {
    if (now_ns >= rates_.until_ns) return 0;
    double delay = 0.0;
    if (random_.Chance(rates_.pause)) {
      delay += random_.Exponential(static_cast<double>(rates_.pause_ns));
    }
    if (random_.Chance(rates_.clock_jump)) {
      delay += random_.Exponential(static_cast<double>(rates_.jump_ns));
    }
    return static_cast<int64_t>(delay);
  }

 private:
  const FaultRates rates_;
  Random random_;
  const Clock& clock_;
};

}  // namespace polysil

// LatencyLedger: keeps a SequenceLatency. EngineCore tells it what happens to the sequence and
// when; each time, what passed since the time before goes to one part or is split between two.
// Bounded: counts and sums, no list. A few additions for each step of a sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/sequence.h"
#include "polysil/engine/latency.h"

namespace polysil {

class LatencyLedger final {
 public:
  explicit LatencyLedger(int64_t arrived_ns) : mark_ns_(arrived_ns) {}

  // Its first step was built, or the first after a preemption.
  void OnAdmitted(int64_t now_ns) {
    (admitted_ ? latency_.preempted_ns : latency_.queue_ns) += Lap(now_ns);
    if (std::exchange(admitted_, true)) ++latency_.preemptions;
  }

  // A step of it came back after `duration_ns` on the device; failed ones too. The rest of the time
  // since the one before it spent waiting.
  void OnStep(int64_t now_ns, int64_t duration_ns, bool decode) {
    const int64_t elapsed_ns = Lap(now_ns);
    const int64_t device_ns = std::clamp<int64_t>(duration_ns, 0, elapsed_ns);
    latency_.wait_ns += elapsed_ns - device_ns;
    (decode ? latency_.decode_ns : latency_.prefill_ns) += device_ns;
    ++(decode ? latency_.decode_steps : latency_.prefill_steps);
  }

  // Up to now, for an output of `sequence`, which may be its last. What passed since its last step
  // goes where the sequence is: to the step in flight, which will not come back in time to say how
  // long it took, if there is one.
  const SequenceLatency& UpTo(int64_t now_ns, const Sequence& sequence) {
    const int64_t elapsed_ns = Lap(now_ns);
    if (elapsed_ns == 0) return latency_;
    if (!admitted_) {
      latency_.queue_ns += elapsed_ns;
    } else if (sequence.state() == SequenceState::kPreempted) {
      latency_.preempted_ns += elapsed_ns;
    } else if (sequence.steps_in_flight() == 0) {
      latency_.wait_ns += elapsed_ns;
    } else if (sequence.output_tokens() > 0) {
      latency_.decode_ns += elapsed_ns;
    } else {
      latency_.prefill_ns += elapsed_ns;
    }
    return latency_;
  }

 private:
  int64_t Lap(int64_t now_ns) { return now_ns - std::exchange(mark_ns_, now_ns); }

  SequenceLatency latency_;
  int64_t mark_ns_;
  bool admitted_ = false;
};

}  // namespace polysil

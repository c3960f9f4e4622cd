// SequenceLatency: where the time of one sequence went inside the engine, from the submission of
// its request until now. The parts do not overlap and leave nothing out: they sum to now minus the
// submission, on the engine's clock. A value that rides on every output.
#pragma once

#include <cstdint>

namespace polysil {

struct SequenceLatency {
  int64_t queue_ns = 0;      // before the first step that ran it was built
  int64_t prefill_ns = 0;    // on the device, in steps that brought it towards its next token only
  int64_t decode_ns = 0;     // on the device, in steps that computed the token before alone
  int64_t wait_ns = 0;       // between its steps: other steps, and the engine's own work
  int64_t preempted_ns = 0;  // from its last step before a preemption to the next one after it
  int32_t prefill_steps = 0;
  int32_t decode_steps = 0;
  int32_t preemptions = 0;

  int64_t total_ns() const { return queue_ns + prefill_ns + decode_ns + wait_ns + preempted_ns; }
};

}  // namespace polysil

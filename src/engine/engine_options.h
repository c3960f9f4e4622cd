// EngineOptions: what an operator may set of one engine, and the facts of the model it serves.
#pragma once

#include <cstdint>

#include "sched/service_weights.h"

namespace polysil {

struct EngineOptions {
  int32_t sequences_max = 64;          // run at once; the executor's own limit applies as well
  int32_t queue_max = 256;             // sequences that may wait besides those that run
  int64_t queue_tokens_max = 1 << 20;  // of those that wait, unless one waits alone
  // Requests are of more than one tenant: none may take all places, nor all tokens that may wait.
  bool tenants_leave_room = false;
  int64_t itl_target_ns = 0;  // between two tokens of a sequence; 0: none
  ServiceWeights weights;     // what is a fair share
  bool prefix_cache = true;
  // Without progress for so long (a step not moved on, an input not taken, an output not
  // delivered) the engine is not ready. A step may take as long as it wants: the executor's
  // heartbeat says that it moves. Must exceed the longest single operation; 256 rows through the
  // widest matrix of a model of 8 billion weights take two cores half a second.
  int64_t stall_ns = 1'500'000'000;
};

struct ModelLimits {
  int32_t vocab_size = 0;
  int32_t context_tokens_max = 0;  // prompt and output together
};

}  // namespace polysil

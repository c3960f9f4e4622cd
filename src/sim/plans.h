// Plans: which simulations there are. One is drawn from a seed: engine, device, workload and faults
// alike, small enough that thousands run in a minute. One replays a trace on a device that can just
// keep up with it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/simulation.h"
#include "sim/trace.h"

namespace polysil {

SimPlan PlanOfSeed(uint64_t seed);

// kv_blocks: of 512 tokens.
SimPlan PlanOfTrace(std::vector<TraceRequest> requests, int32_t kv_blocks);

}  // namespace polysil

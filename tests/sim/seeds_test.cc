// Random simulations: engine, device, workload and faults drawn from a seed, all that must hold
// checked after every tick.
#include <gtest/gtest.h>

#include "sim/plans.h"
#include "sim/run.h"

namespace polysil {
namespace {

TEST(Seeds, HoldWhateverIsDrawn) {
  constexpr uint64_t kSeeds = 20'000;
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint64_t ended[6] = {};
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Simulation simulation(PlanOfSeed(seed), false);
    const Status status = RunToEnd(simulation, {.seed = seed});
    ASSERT_TRUE(status.ok()) << Message(status);
    const EngineStats stats = simulation.stats();
    preemptions += stats.preemptions;
    hits += stats.prefix_cache_hit_tokens;
    ended[0] += stats.requests_stop;
    ended[1] += stats.requests_length;
    ended[2] += stats.requests_cancelled;
    ended[3] += stats.requests_deadline;
    ended[4] += stats.requests_error;
    ended[5] += stats.requests_refused;
  }
  // A space of plans in which these do not happen often would test nothing.
  EXPECT_GT(preemptions, kSeeds / 2);
  EXPECT_GT(hits, 10 * kSeeds);
  for (const uint64_t each : ended) EXPECT_GT(each, kSeeds / 4);
}

}  // namespace
}  // namespace polysil

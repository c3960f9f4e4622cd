// CoreChecks: what must hold of an EngineCore after every tick, whatever it was told. It looks only
// through the public interface. Owned by Simulation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/engine_core.h"
#include "sim/clients.h"
#include "sim/violation.h"

namespace polysil {

class CoreChecks final {
 public:
  // integrity_every: the counts of all blocks are compared every so many ticks.
  explicit CoreChecks(int32_t integrity_every) : integrity_every_(integrity_every) {}

  // After tick number `tick`, with the core's `stats` of that moment.
  std::optional<Violation> Check(int64_t tick, const EngineCore& core, const EngineStats& stats,
                                 const Clients& clients);

 private:
  static constexpr size_t kCounters = 12;

  static std::optional<Violation> CheckBlocks(const EngineCore& core, const EngineStats& stats);
  static std::optional<Violation> CheckRequests(const EngineStats& stats, const Clients& clients);
  std::optional<Violation> CheckCounters(const EngineStats& stats);

  const int32_t integrity_every_;
  std::array<uint64_t, kCounters> counters_{};
};

}  // namespace polysil

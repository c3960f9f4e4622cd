// Simulation: the production EngineCore under a virtual clock, with simulated clients and a
// simulated device, and everything that must hold checked after every tick. It drives the core as
// EngineThread does, but from one thread, and equal plans give equal runs to the last tick.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine_core.h"
#include "polysil/engine/engine.h"
#include "sim/clients.h"
#include "sim/core_checks.h"
#include "sim/faults.h"
#include "sim/sim_clock.h"
#include "sim/sim_executor.h"
#include "sim/timeline.h"
#include "sim/violation.h"
#include "sim/workload.h"

namespace polysil {

struct SimPlan {
  std::string description;  // one line for people
  EngineCoreOptions engine;
  SimExecutorOptions device;
  std::unique_ptr<Workload> workload;
  FaultRates faults;
  uint64_t fault_seed = 0;
  std::optional<int64_t> drain_ns;  // the engine is told to shut down then
  int64_t drain_grace_ns = 0;
  int32_t integrity_every = 1;  // the counts of all blocks are compared every so many ticks
};

struct SimObservers {
  std::function<void(int64_t tick)> before_tick;
  std::function<void(const std::string& line)> after_tick;  // the tick in words
};

class Simulation final {
 public:
  // with_timeline: keeps what Timeline shows.
  Simulation(SimPlan plan, bool with_timeline);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // One tick at the next time at which something happens. False: nothing will happen any more, or
  // something is wrong.
  bool Advance(const SimObservers& observers);

  const std::optional<Violation>& violation() const { return violation_; }
  int64_t ticks() const { return ticks_; }
  int64_t now_ns() const { return clock_.NowNs(); }
  const std::string& description() const { return plan_.description; }
  EngineStats stats() const { return core_.stats(); }
  const Clients& clients() const { return clients_; }
  const SimExecutor& device() const { return device_; }
  const Timeline* timeline() const { return timeline_ ? &*timeline_ : nullptr; }

 private:
  int64_t NextEventNs() const;
  EngineInputs GatherInputs(int64_t now_ns);
  void Check(int64_t now_ns);

  SimPlan plan_;
  SimClock clock_;
  Faults faults_;
  std::optional<Timeline> timeline_;
  SimExecutor device_;
  Clients clients_;
  CoreChecks checks_;
  EngineCore core_;
  int64_t wake_ns_ = kNever;
  bool drain_told_ = false;
  int64_t ticks_ = 0;
  int32_t ticks_idle_ = 0;  // since one last had an input
  std::optional<Violation> violation_;
};

}  // namespace polysil

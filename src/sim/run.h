// RunToEnd: a simulation of a seed from its first tick to its last, or up to a tick that is to be
// looked at. What is wrong comes back as a sentence with the seed, the tick and the command that
// shows it again; a broken invariant aborts the process, and the same is written to stderr then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "polysil/base/status.h"
#include "sim/simulation.h"

namespace polysil {

struct RunOptions {
  uint64_t seed = 0;
  int64_t until_tick = kNever;
  // Gets the last ticks before until_tick in words, one line each. May be absent.
  std::function<void(const std::string& line)> print_tick;
};

Status RunToEnd(Simulation& simulation, const RunOptions& options);

}  // namespace polysil

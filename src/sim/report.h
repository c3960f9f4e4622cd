// Report: what came out of a simulation, as a table for people and as JSON for programs.
#pragma once

#include <string>

#include "sim/simulation.h"

namespace polysil {

// Lines "name  value", for a terminal.
std::string TableOf(const Simulation& simulation);
// One object: the same figures, and the timeline's bins where the simulation kept one.
std::string JsonOf(const Simulation& simulation);

}  // namespace polysil

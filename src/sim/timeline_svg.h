// TimelineSvg: a Timeline as a picture: occupancy of the KV pool, requests that run and wait, times
// to the first token and between tokens.
#pragma once

#include <string>

#include "sim/simulation.h"

namespace polysil {

// A whole SVG document. The simulation must have kept a timeline.
std::string SvgOf(const Simulation& simulation);

}  // namespace polysil

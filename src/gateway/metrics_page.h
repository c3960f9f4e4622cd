// The /metrics page: EngineStats in Prometheus' text format. The names are a contract.
#pragma once

#include <string>

#include "polysil/engine/engine.h"

namespace polysil {

std::string MetricsPage(const EngineStats& stats);

}  // namespace polysil

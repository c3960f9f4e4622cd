// The /metrics page: EngineStats and where calls spent their time, in Prometheus' text format. The
// names are a contract.
#pragma once

#include <string>

#include "polysil/engine/engine.h"
#include "session/call_ledger.h"

namespace polysil {

std::string MetricsPage(const EngineStats& stats, const LatencyTotals::Histograms& segments);

}  // namespace polysil

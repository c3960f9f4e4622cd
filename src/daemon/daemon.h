// The life of `polysil serve`: start, say ready, wait for a signal, drain, end.
#pragma once

#include <string>

#include "polysil/base/status.h"
#include "polysil/v1/config.pb.h"

namespace polysil {

// Blocks the signals that end the daemon in this thread and in every thread started after. Call it
// first of all in main.
void BlockStopSignals();

// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once. OK after an orderly
// end. `config` is Complete.
Status Serve(const std::string& model_path, const v1::Config& config);

}  // namespace polysil

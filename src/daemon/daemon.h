// The life of `polysil serve`: listen, load the model, say ready, wait for a signal, drain, end.
#pragma once

#include <string>

#include "polysil/base/status.h"
#include "polysil/v1/config.pb.h"

namespace polysil {

// Blocks the signals that end the daemon in this thread and in every thread started after. Call it
// first of all in main.
void BlockStopSignals();

// Serves until SIGTERM or SIGINT, then drains; a second signal ends at once. OK after an orderly
// end. Both addresses are bound before the model is loaded. A signal while it is loaded ends the
// process there, with exit code 0. `config` is Complete.
Status Serve(const std::string& model_path, const v1::Config& config);

}  // namespace polysil

// TickText: a tick in words, for whoever replays a failure.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_core.h"

namespace polysil {

// "12.345 ms: results 4; submitted 7(n=2, 31 tokens)"
std::string TextOf(int64_t now_ns, const EngineInputs& inputs);
// "; step 5: 3 [0, 16) + 4 [20, 21)+; outputs 3/0 +1, 4/0 +1 length"
std::string TextOf(const EngineActions& actions);

}  // namespace polysil

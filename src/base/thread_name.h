// Names the calling thread, so that people see it in `top -H` and in a debugger.
#pragma once

#include <string_view>

namespace polysil {

// At most 15 bytes count: "engine", "worker-0", "http-1".
void SetThreadName(std::string_view name);

}  // namespace polysil

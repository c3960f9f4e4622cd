// Violation: what a simulation found to be wrong. A value.
#pragma once

#include <optional>
#include <string>

namespace polysil {

struct Violation {
  std::string check;  // the name of what must hold
  std::string message;
};

}  // namespace polysil

// Text that a person gives to a command: on stdin or as an argument.
#pragma once

#include <string>
#include <string_view>

#include "polysil/base/status.h"

namespace polysil {

// INVALID_ARGUMENT with the place of the first byte that is not UTF-8; `what` names the text.
Status CheckUtf8(std::string_view what, std::string_view text);

// All of stdin, well-formed. Fails where reading fails.
StatusOr<std::string> ReadStdin();

}  // namespace polysil

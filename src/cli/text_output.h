// What a command leaves behind: text on stdout and in files.
#pragma once

#include <string>

#include "polysil/base/status.h"

namespace polysil {

// What was printed has left the process. Fails where stdout cannot take it.
Status FlushStdout();

// The file holds `text` and nothing else. Fails where it cannot be written.
Status WriteFile(const std::string& path, const std::string& text);

}  // namespace polysil

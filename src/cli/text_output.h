// What a command says and leaves behind: text on stdout, on the terminal and in files.
#pragma once

#include <string>

#include "polysil/base/status.h"

namespace polysil {

// What was printed has left the process. Fails where stdout cannot take it.
Status FlushStdout();

// A line on stderr in the place of the last one, without an end; empty: only that one goes. Nothing
// where stderr is no terminal.
void ShowProgress(const std::string& text);

// Fails where WriteFile would, before the work is done whose result it is. An empty path is none.
Status CheckWritable(const std::string& path);

// The file holds `text` and nothing else. Fails where it cannot be written.
Status WriteFile(const std::string& path, const std::string& text);

}  // namespace polysil

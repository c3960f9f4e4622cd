// Runs one text call and writes its text to stdout as it comes. For the commands that serve nobody
// but the person at the terminal. Main thread.
#pragma once

#include <string>

#include "polysil/base/status.h"
#include "session/text_service.h"

namespace polysil {

struct ConsoleAnswer {
  std::string text;
  TextUsage usage;
  double seconds_to_first_token = 0.0;
  double seconds_total = 0.0;
};

// Waits for the end of the call.
StatusOr<ConsoleAnswer> RunToConsole(TextService& service, TextCall call);

}  // namespace polysil

// StreamEvent: what one event of an OpenAI completion stream says, text or chat. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "polysil/base/status.h"

namespace polysil {

struct StreamUsage {
  int32_t input_tokens = 0;
  int32_t output_tokens = 0;
  int32_t cached_tokens = 0;  // of the input
};

struct StreamEvent {
  bool done = false;  // "[DONE]"
  bool has_choice = false;
  std::string text;           // of the first choice; also where it is thought, not said
  std::string finish_reason;  // of the first choice; may be empty
  std::string error;          // of the server; may be empty
  std::optional<StreamUsage> usage;
};

// INVALID_ARGUMENT: it is no event of such a stream.
StatusOr<StreamEvent> ParseStreamEvent(std::string_view data);

}  // namespace polysil

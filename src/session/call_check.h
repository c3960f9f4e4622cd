// What is wrong with a call before any text work: ranges, counts, shapes. Pure functions of values.
// Every refusal is INVALID_ARGUMENT with FieldOf set and the value in the sentence.
#pragma once

#include <span>
#include <string_view>

#include "polysil/base/status.h"
#include "polysil/core/request.h"
#include "session/text_call.h"
#include "session/text_service.h"

namespace polysil {

// All of a call but its prompts' contents.
Status CheckCall(const TextCall& call, const TextLimits& limits, const RequestLimits& engine);

// Ids of a prompt, under the name of the field that they came from.
Status CheckPromptIds(std::span<const TokenId> ids, std::string_view field,
                      const RequestLimits& engine);

}  // namespace polysil

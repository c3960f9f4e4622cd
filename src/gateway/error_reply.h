// Failures as HTTP answers, with OpenAI's error object: {"error": {message, type, param, code}}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gateway/exchange.h"
#include "polysil/base/status.h"

namespace polysil {

// What the answer must look like for a Status: its HTTP status code.
int HttpStatusOf(const Status& status);

// The error object alone, for an answer's body or for an event of a stream.
std::string ErrorJson(const Status& status);

// The whole answer, with Retry-After where there is one.
HttpReply ErrorReply(const Status& status, std::optional<int32_t> retry_after_seconds);

// For what is wrong with the HTTP itself: 404 of routes, 405, 408, 413, 431 and so on. `code` is
// for programs; empty: null.
HttpReply ProtocolErrorReply(int http_status, std::string_view message, std::string_view code = {});

}  // namespace polysil

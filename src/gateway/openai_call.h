// OpenAI's request bodies as text calls. Only reads and checks types and what is OpenAI's own;
// ranges are the session's. docs/api.md lists every field read here.
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "polysil/base/status.h"
#include "session/text_call.h"

namespace polysil {

// How the client wants its answer.
struct AnswerForm {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool return_token_ids = false;
  bool return_latency = false;  // in the usage
};

struct OpenAiCall {
  TextCall call;
  AnswerForm form;
};

// Take the body apart. INVALID_ARGUMENT with FieldOf.
StatusOr<OpenAiCall> ReadCompletionCall(boost::json::object body);
StatusOr<OpenAiCall> ReadChatCall(boost::json::object body);

// /tokenize: "prompt" (a text) or "messages".
struct TokenizeCall {
  std::optional<std::string> model;
  TextPrompt prompt;
  PromptEncoding encoding;
  bool return_tokens = false;
};
StatusOr<TokenizeCall> ReadTokenizeCall(boost::json::object body);

struct DetokenizeCall {
  std::optional<std::string> model;
  std::vector<TokenId> ids;
  bool skip_control = false;
};
StatusOr<DetokenizeCall> ReadDetokenizeCall(boost::json::object body);

}  // namespace polysil

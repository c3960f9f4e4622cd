// ChatTemplate: messages to prompt text, by the Jinja2 template that a model ships. Bounded in
// steps, depth and output. Remembers which bytes came from messages, so that they cannot open or
// close a turn when tokenized. Immutable, thread-safe.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "polysil/base/status.h"
#include "text/tokenizer.h"

namespace polysil {

struct ChatTemplateOptions {
  std::string bos_token;  // their texts; may be empty
  std::string eos_token;
  std::function<std::tm()> local_time;  // for strftime_now(); empty: the machine's clock
};

struct RenderedChat {
  std::string text;
  std::vector<ByteSpan> untrusted;  // rising, disjoint: what came from messages, tools and kwargs
};

struct ChatInput {
  boost::json::array messages;         // OpenAI messages, as the client sent them
  boost::json::value tools = nullptr;  // array or null
  boost::json::object kwargs;          // further template variables (chat_template_kwargs)
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

// What the template can do, probed once at load.
struct ChatTemplateCaps {
  bool system_role = true;
  bool content_parts = false;      // content may stay a list of parts
  bool arguments_as_text = false;  // tool call arguments are wanted as JSON text
  bool tools = false;
};

class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;
  // A syntax error is INVALID_ARGUMENT with the line.
  static StatusOr<std::shared_ptr<const ChatTemplate>> Create(const std::string& source,
                                                              ChatTemplateOptions options);
  // Normalises the messages as docs/api.md says, then renders. raise_exception and type errors are
  // INVALID_ARGUMENT with the template's words.
  virtual StatusOr<RenderedChat> Render(const ChatInput& input) const = 0;
  // The variables exactly as given, in the reference's sandbox (no list or dict may be changed);
  // for tests against a reference. `continue_final_message` is obeyed and not passed on.
  virtual StatusOr<RenderedChat> RenderRaw(const boost::json::object& variables) const = 0;
  virtual const ChatTemplateCaps& caps() const = 0;
};

}  // namespace polysil

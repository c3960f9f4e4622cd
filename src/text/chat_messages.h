// Chat messages as clients send them, checked and turned into what a template expects. What differs
// between templates is data: MessageRules, found by probing (chat_probe.h). Pure functions.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include "polysil/base/status.h"
#include "text/jinja/runtime.h"

namespace polysil {

// What a template can do with messages; the defaults are those of a template that can do everything
// a chat needs and nothing more.
struct MessageRules {
  bool system_role = true;         // false: the system text goes before the next user text
  bool system_several = true;      // false: leading system messages are joined
  bool system_later = true;        // false: one after the beginning goes before the next user text
  bool developer_role = false;     // false: it becomes a system message
  bool tool_role = true;           // false: tool results become user messages in <tool_response>
  bool tool_calls = true;          // false: calls become text in <tool_call>
  bool content_parts = false;      // false: text parts are joined to one string
  bool arguments_as_text = false;  // tool call arguments stay JSON text
  bool null_content = false;       // a call without text has content none, otherwise ""
  bool short_call_ids = false;     // ids of calls become nine letters and digits
};

// The list for the template's `messages`. Everything a client may get wrong is INVALID_ARGUMENT and
// names the field: "messages[2].content ...".
StatusOr<jinja::Value> NormalizeMessages(jinja::Runtime& runtime,
                                         const boost::json::array& messages,
                                         const MessageRules& rules);
// An array of function tools, or null.
Status CheckTools(const boost::json::value& tools);

// Roles that a client may use; only these may stand within a control token of the template.
bool IsKnownRole(std::string_view role);

}  // namespace polysil

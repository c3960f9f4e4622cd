// Probing: renders a few small chats through a template once, at load, and reads from the outputs
// what the template can do. Costs some thirty renderings of a few hundred bytes.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "polysil/base/status.h"
#include "text/chat_messages.h"

namespace polysil {

// How to pass what a request has none of: some templates fail on none, some need it.
struct AbsentVariables {
  bool tools_none = true;  // `tools` is none; false: not defined
  bool documents_none = true;
};

struct ProbeResult {
  MessageRules rules;
  AbsentVariables absent;
  bool tools = false;  // tool definitions are shown
};

using ProbeRender = std::function<StatusOr<std::string>(
    const boost::json::array& messages, const boost::json::value& tools, const MessageRules& rules,
    const AbsentVariables& absent)>;

// mentions_developer: the template's source names that role.
ProbeResult ProbeTemplate(const ProbeRender& render, bool mentions_developer);

}  // namespace polysil

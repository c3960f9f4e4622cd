#include <fmt/core.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/text_input.h"
#include "daemon/assemble.h"
#include "polysil/base/clock.h"

namespace polysil {
namespace {

boost::json::object ChatMessage(std::string_view role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace

Status RunChat(const ChatArgs& args, const v1::Config& config) {
  RETURN_IF_ERROR(CheckUtf8("the system message", args.system));
  const SteadyClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Assembly> assembly,
                   Assembly::Create(args.model_path, config, clock));
  boost::json::array messages;
  if (!args.system.empty()) messages.push_back(ChatMessage("system", args.system));
  const bool interactive = isatty(STDIN_FILENO) != 0;
  if (interactive) {
    fmt::print("Write a message and press Enter; an empty line or Ctrl-D ends the chat.\n");
  }
  std::string line;
  while (true) {
    if (interactive) fmt::print("> ");
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return OkStatus();
    if (line.empty()) {
      if (interactive) return OkStatus();
      continue;
    }
    RETURN_IF_ERROR(CheckUtf8("the message", line));
    messages.push_back(ChatMessage("user", line));
    TextCall call;
    call.prompts = {ChatInput{.messages = messages}};
    call.sampling.temperature = args.temperature;
    ASSIGN_OR_RETURN(const ConsoleAnswer answer, RunToConsole(assembly->text(), std::move(call)));
    fmt::print("\n");
    messages.push_back(ChatMessage("assistant", answer.text));
  }
}

}  // namespace polysil

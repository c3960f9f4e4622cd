// Renders chats for tests: templates by name, chats from JSON, prompts with their untrusted bytes
// shown.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "text/chat_template.h"
#include "text/golden_files.h"
#include "text/template_runner.h"

namespace polysil {

inline constexpr std::string_view kSmolLm2Template =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

// A template that shows everything it is given.
inline constexpr std::string_view kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}({{ c.id }} {{ c.function.name }} "
    "{{ c.function.arguments|tojson }}){% endfor %}"
    "{% if m.name %}@{{ m.name }}{% endif %}{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %}"
    "{% if m.reasoning_content %}?{{ m.reasoning_content }}{% endif %}"
    "</{{ m.role }}>{% endfor %}"
    "{% if tools %}{{ tools|tojson }}{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

inline constexpr std::string_view kUser = R"([{"role":"user","content":"Hi"}])";

inline std::shared_ptr<const ChatTemplate> Create(std::string_view source) {
  auto created = ChatTemplate::Create(
      std::string(source),
      {.bos_token = "<s>", .eos_token = "<|im_end|>", .local_time = ReferenceTime});
  CHECK(created.ok(), "{}", Message(created.status()));
  return *std::move(created);
}

inline std::shared_ptr<const ChatTemplate> Published(std::string_view name) {
  return Create(ReadFile(TestData("templates/") + std::string(name) + ".jinja"));
}

inline boost::json::array Parse(std::string_view text) {
  return boost::json::parse(boost::json::string_view(text.data(), text.size())).as_array();
}

inline StatusOr<RenderedChat> Render(const ChatTemplate& chat_template, std::string_view messages,
                                     ChatInput input = {}) {
  input.messages = Parse(messages);
  return chat_template.Render(input);
}

// The prompt with what came from the client in brackets, or the error.
inline std::string Prompt(const ChatTemplate& chat_template, std::string_view messages,
                          ChatInput input = {}) {
  const auto chat = Render(chat_template, messages, std::move(input));
  if (!chat.ok()) {
    EXPECT_EQ(chat.status().code(), StatusCode::kInvalidArgument);
    return "error: " + Message(chat.status());
  }
  return ShowUntrusted(chat->text, chat->untrusted);
}

}  // namespace polysil

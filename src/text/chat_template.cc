#include "text/chat_template.h"

#include <boost/json/string.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "text/chat_messages.h"
#include "text/chat_probe.h"
#include "text/jinja/operations.h"
#include "text/jinja/parser.h"
#include "text/jinja/rendering.h"
#include "text/jinja/unicode.h"

namespace polysil {
namespace {

namespace json = boost::json;
using jinja::Rendering;
using jinja::Text;
using jinja::Value;

// Set by the engine, or arguments of the function that renders: never template variables of a
// request.
constexpr std::string_view kReservedVariables[] = {
    "messages",
    "conversation",
    "tools",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "chat_template",
    "continue_final_message",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "tokenizer_kwargs",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
};

// Marks the end of the message to be continued. The space shows whether the template trims.
constexpr std::string_view kContinueMark = "\xEE\x80\x80polysil-continue\xEE\x80\x80 ";

std::tm MachineLocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm result{};
  localtime_r(&now, &result);
  return result;
}

std::string_view View(json::string_view text) {
  return {text.data(), text.size()};
}

// Appends the mark to the last message of `messages`.
Status MarkLastMessage(jinja::Runtime& runtime, const Value& messages) {
  const Status no_content =
      InvalidArgument("continue_final_message needs a last message whose content is text");
  if (!messages.is_list() || messages.as<jinja::List>().items.empty()) return no_content;
  const Value& last = messages.as<jinja::List>().items.back();
  if (!last.is_dict()) return no_content;
  auto& message = last.as<jinja::Dict>();
  const Value* content = message.Find("content");
  Value holder = last;
  std::string_view key = "content";
  if (content != nullptr && content->is_list() && !content->as<jinja::List>().items.empty()) {
    holder = content->as<jinja::List>().items.back();
    if (!holder.is_dict()) return no_content;
    key = "text";
    content = holder.as<jinja::Dict>().Find("text");
  }
  if (content == nullptr || !content->is_string()) return no_content;
  Text text = content->as<jinja::String>().text;
  text.Append(kContinueMark, true);
  holder.as<jinja::Dict>().Set(runtime.NewString(key), runtime.NewString(std::move(text)));
  return OkStatus();
}

// Drops the mark and what follows it.
Status CutAtMark(Text* text) {
  const std::string_view trimmed = kContinueMark.substr(0, kContinueMark.size() - 1);
  const size_t at = text->view().rfind(trimmed);
  if (at == std::string_view::npos) {
    return InvalidArgument(
        "the chat template does not show the last message, so it cannot be "
        "continued");
  }
  const bool spaces_kept = text->view().substr(at).starts_with(kContinueMark);
  text->Truncate(at);
  if (!spaces_kept) {
    const std::string_view stripped = jinja::StripSpace(text->view());
    text->Truncate(stripped.empty() ? 0
                                    : static_cast<size_t>(stripped.data() - text->view().data()) +
                                          stripped.size());
  }
  return OkStatus();
}

// The roles that are markup rather than content may stand within a control token.
void TrustKnownRoles(jinja::Runtime& runtime, const Value& messages) {
  if (!messages.is_list()) return;
  for (const Value& message : messages.as<jinja::List>().items) {
    if (!message.is_dict()) continue;
    auto& fields = message.as<jinja::Dict>();
    const Value* role = fields.Find("role");
    if (role == nullptr || !role->is_string()) continue;
    const std::string name = role->as<jinja::String>().bytes();
    if (IsKnownRole(name)) fields.Set(runtime.NewString("role"), runtime.NewString(name));
  }
}

class JinjaChatTemplate final : public ChatTemplate {
 public:
  JinjaChatTemplate(std::unique_ptr<const jinja::Ast> ast, ChatTemplateOptions options,
                    bool mentions_developer)
      : ast_(std::move(ast)), options_(std::move(options)) {
    const ProbeRender render = [this](const json::array& messages, const json::value& tools,
                                      const MessageRules& rules,
                                      const AbsentVariables& absent) -> StatusOr<std::string> {
      ChatInput input;
      input.messages = messages;
      input.tools = tools;
      ASSIGN_OR_RETURN(const Text text, RenderWith(input, rules, absent));
      return text.bytes();
    };
    probed_ = ProbeTemplate(render, mentions_developer);
    caps_ = {.system_role = probed_.rules.system_role,
             .content_parts = probed_.rules.content_parts,
             .arguments_as_text = probed_.rules.arguments_as_text,
             .tools = probed_.tools};
  }

  StatusOr<RenderedChat> Render(const ChatInput& input) const override {
    if (input.messages.empty()) return InvalidArgument("messages must not be empty");
    RETURN_IF_ERROR(CheckTools(input.tools));
    for (const auto& variable : input.kwargs) {
      for (const std::string_view reserved : kReservedVariables) {
        if (View(variable.key()) == reserved) {
          return InvalidArgument("chat_template_kwargs.{} is not for a request to set", reserved);
        }
      }
    }
    ASSIGN_OR_RETURN(const Text text, RenderWith(input, probed_.rules, probed_.absent));
    return RenderedChat{text.bytes(), text.untrusted()};
  }

  StatusOr<RenderedChat> RenderRaw(const json::object& variables) const override {
    Rendering rendering(*ast_, jinja::Dialect::kReference, {}, Now());
    SetTokens(rendering);
    bool continue_final = false;
    Value messages;
    for (const auto& variable : variables) {
      const std::string_view name = View(variable.key());
      if (name == "continue_final_message") {
        continue_final = variable.value().is_bool() && variable.value().get_bool();
        continue;
      }
      const bool trusted = name == "bos_token" || name == "eos_token";
      Value value;
      if (!jinja::FromJson(rendering.runtime(), variable.value(), !trusted, &value)) {
        return rendering.error();
      }
      if (name == "messages") {
        TrustKnownRoles(rendering.runtime(), value);
        messages = value;
      }
      rendering.SetVariable(name, std::move(value));
    }
    if (continue_final) RETURN_IF_ERROR(MarkLastMessage(rendering.runtime(), messages));
    ASSIGN_OR_RETURN(Text text, rendering.Run());
    if (continue_final) RETURN_IF_ERROR(CutAtMark(&text));
    return RenderedChat{text.bytes(), text.untrusted()};
  }

  const ChatTemplateCaps& caps() const override { return caps_; }

 private:
  std::tm Now() const { return options_.local_time ? options_.local_time() : MachineLocalTime(); }

  void SetTokens(Rendering& rendering) const {
    jinja::Runtime& runtime = rendering.runtime();
    rendering.SetVariable("bos_token", runtime.NewString(options_.bos_token));
    rendering.SetVariable("eos_token", runtime.NewString(options_.eos_token));
  }

  StatusOr<Text> RenderWith(const ChatInput& input, const MessageRules& rules,
                            const AbsentVariables& absent) const {
    Rendering rendering(*ast_, jinja::Dialect::kServing, {}, Now());
    jinja::Runtime& runtime = rendering.runtime();
    ASSIGN_OR_RETURN(const Value messages, NormalizeMessages(runtime, input.messages, rules));
    if (input.continue_final_message) {
      const json::object& last = input.messages.back().get_object();
      if (last.at("role").get_string() != "assistant") {
        return InvalidArgument(
            "continue_final_message needs the last message to be the assistant's");
      }
      RETURN_IF_ERROR(MarkLastMessage(runtime, messages));
    }
    SetTokens(rendering);
    if (absent.documents_none) rendering.SetVariable("documents", Value::None());
    for (const auto& variable : input.kwargs) {
      Value value;
      if (!jinja::FromJson(runtime, variable.value(), true, &value)) return rendering.error();
      rendering.SetVariable(View(variable.key()), std::move(value));
    }
    rendering.SetVariable("messages", messages);
    // No tools and an empty list of them are the same to a client, but not to every template.
    const bool has_tools = input.tools.is_array() && !input.tools.get_array().empty();
    if (has_tools) {
      Value tools;
      if (!jinja::FromJson(runtime, input.tools, true, &tools)) return rendering.error();
      rendering.SetVariable("tools", std::move(tools));
    } else if (absent.tools_none) {
      rendering.SetVariable("tools", Value::None());
    }
    const bool prompt = input.add_generation_prompt && !input.continue_final_message;
    rendering.SetVariable("add_generation_prompt", Value::Bool(prompt));
    ASSIGN_OR_RETURN(Text text, rendering.Run());
    if (input.continue_final_message) RETURN_IF_ERROR(CutAtMark(&text));
    return text;
  }

  const std::unique_ptr<const jinja::Ast> ast_;
  const ChatTemplateOptions options_;
  ProbeResult probed_;
  ChatTemplateCaps caps_;
};

}  // namespace

StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Create(const std::string& source,
                                                                   ChatTemplateOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<const jinja::Ast> ast, jinja::Parse(source));
  const bool mentions_developer = source.find("'developer'") != std::string::npos ||
                                  source.find("\"developer\"") != std::string::npos;
  return std::shared_ptr<const ChatTemplate>(
      std::make_shared<JinjaChatTemplate>(std::move(ast), std::move(options), mentions_developer));
}

}  // namespace polysil

#include "text/chat_messages.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/operations.h"
#include "text/jinja/rendering.h"

namespace polysil {
namespace {

namespace json = boost::json;
using jinja::Dict;
using jinja::Runtime;
using jinja::Text;
using jinja::Value;

constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                       "assistant", "tool",      "function"};
constexpr size_t kCallIdShort = 9;

std::string_view KindName(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "";
}

std::string_view View(const json::string& text) {
  return {text.data(), text.size()};
}

// The member, unless it is absent or null.
const json::value* Member(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

// A member that has to be a string where it is there.
StatusOr<const json::string*> StringMember(const json::object& object, std::string_view name,
                                           const std::string& path) {
  const json::value* value = Member(object, name);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) {
    return InvalidArgument("{}.{} must be a string, not {}", path, name, KindName(*value));
  }
  return &value->get_string();
}

// Nine letters and digits that depend on the id alone. FNV-1a, 64 bits, in base 62.
std::string ShortId(std::string_view id) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool short_already =
      id.size() == kCallIdShort && std::all_of(id.begin(), id.end(), [kDigits](char c) {
        return kDigits.find(c) != std::string_view::npos;
      });
  if (short_already) return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string result;
  for (size_t i = 0; i < kCallIdShort; ++i, hash /= kDigits.size()) {
    result.push_back(kDigits[hash % kDigits.size()]);
  }
  return result;
}

// One message on its way into the template.
struct Message {
  std::string role;
  Value fields;                // a dict
  bool tool_response = false;  // a tool's result as a user message
};

class Normalizer final {
 public:
  Normalizer(Runtime& runtime, const MessageRules& rules) : runtime_(runtime), rules_(rules) {}

  StatusOr<Value> Run(const json::array& messages) {
    std::vector<Message> checked;
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string path = fmt::format("messages[{}]", i);
      if (!messages[i].is_object()) {
        return InvalidArgument("{} must be an object, not {}", path, KindName(messages[i]));
      }
      Message message;
      RETURN_IF_ERROR(Check(messages[i].get_object(), path, &message));
      // Results of calls made together are one turn.
      if (message.tool_response && !checked.empty() && checked.back().tool_response) {
        AppendToContent(message, "\n", &checked.back());
      } else {
        checked.push_back(std::move(message));
      }
    }
    PlaceSystemTexts(&checked);
    Value list = runtime_.NewList();
    for (Message& message : checked) {
      list.as<jinja::List>().items.push_back(std::move(message.fields));
    }
    runtime_.Recharge(list);
    RETURN_IF_ERROR(Failure());
    return list;
  }

 private:
  Status Failure() const {
    return runtime_.failed() ? InvalidArgument("messages: {}", runtime_.error()) : OkStatus();
  }
  Value String(std::string_view text, bool untrusted) {
    return runtime_.NewString(Text(std::string(text), untrusted));
  }
  void Set(const Value& dict, std::string_view key, Value value) {
    dict.as<Dict>().Set(String(key, false), std::move(value));
  }
  StatusOr<Value> Convert(const json::value& value) {
    Value result;
    if (!jinja::FromJson(runtime_, value, true, &result)) return Failure();
    return result;
  }

  Status Check(const json::object& source, const std::string& path, Message* message) {
    ASSIGN_OR_RETURN(message->role, Role(source, path));
    message->fields = runtime_.NewDict();
    Set(message->fields, "role", String(message->role, false));
    ASSIGN_OR_RETURN(Value content, Content(source, message->role, path));
    Set(message->fields, "content", std::move(content));
    for (const auto& member : source) {
      const std::string_view key(member.key().data(), member.key().size());
      if (key == "role" || key == "content" || key == "tool_calls" || member.value().is_null()) {
        continue;
      }
      ASSIGN_OR_RETURN(Value value, Convert(member.value()));
      message->fields.as<Dict>().Set(String(key, true), std::move(value));
    }
    RETURN_IF_ERROR(AliasReasoning(source, path, message));
    RETURN_IF_ERROR(AddToolCalls(source, path, message));
    return message->role == "tool" ? FinishToolResult(source, path, message) : Failure();
  }

  StatusOr<std::string> Role(const json::object& source, const std::string& path) {
    const json::value* role = Member(source, "role");
    if (role == nullptr) return InvalidArgument("{}.role is missing", path);
    if (!role->is_string()) {
      return InvalidArgument("{}.role must be a string, not {}", path, KindName(*role));
    }
    const std::string_view name = View(role->get_string());
    if (!IsKnownRole(name)) {
      return InvalidArgument(
          "{}.role is \"{}\"; it must be one of system, developer, user, assistant, tool, function",
          path, name.substr(0, 64));
    }
    if (name == "developer" && !rules_.developer_role) return std::string("system");
    if (name == "function") return std::string("tool");
    return std::string(name);
  }

  StatusOr<Value> Content(const json::object& source, const std::string& role,
                          const std::string& path) {
    const json::value* content = Member(source, "content");
    if (content == nullptr) {
      if (role != "assistant") return InvalidArgument("{}.content is missing", path);
      const bool calls = Member(source, "tool_calls") != nullptr;
      return calls && rules_.null_content && rules_.tool_calls ? Value::None() : String("", false);
    }
    if (content->is_string()) return String(View(content->get_string()), true);
    if (!content->is_array()) {
      return InvalidArgument("{}.content must be a string or an array of parts, not {}", path,
                             KindName(*content));
    }
    Value parts = runtime_.NewList();
    Text joined;
    const json::array& source_parts = content->get_array();
    for (size_t i = 0; i < source_parts.size(); ++i) {
      ASSIGN_OR_RETURN(const std::string_view text,
                       PartText(source_parts[i], fmt::format("{}.content[{}]", path, i)));
      if (!runtime_.Reserve(text.size())) return Failure();
      joined.Append(text, true);
      if (!rules_.content_parts) continue;
      Value part = runtime_.NewDict();
      Set(part, "type", String("text", false));
      Set(part, "text", String(text, true));
      parts.as<jinja::List>().items.push_back(std::move(part));
    }
    if (!rules_.content_parts) return runtime_.NewString(std::move(joined));
    runtime_.Recharge(parts);
    return parts;
  }

  StatusOr<std::string_view> PartText(const json::value& part, const std::string& path) {
    if (!part.is_object()) {
      return InvalidArgument("{} must be an object, not {}", path, KindName(part));
    }
    ASSIGN_OR_RETURN(const json::string* type, StringMember(part.get_object(), "type", path));
    if (type == nullptr) return InvalidArgument("{}.type is missing", path);
    const std::string_view name = View(*type);
    if (name != "text" && name != "refusal") {
      return InvalidArgument("{}.type is \"{}\"; only text parts are supported", path,
                             name.substr(0, 64));
    }
    ASSIGN_OR_RETURN(const json::string* text, StringMember(part.get_object(), name, path));
    if (text == nullptr) return InvalidArgument("{}.{} is missing", path, name);
    return View(*text);
  }

  // The three names under which clients and templates know the reasoning of a past turn.
  Status AliasReasoning(const json::object& source, const std::string& path, Message* message) {
    for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
      ASSIGN_OR_RETURN(const json::string* text, StringMember(source, name, path));
      if (text == nullptr) continue;
      const Value reasoning = String(View(*text), true);
      if (message->fields.as<Dict>().Find("thinking") == nullptr) {
        Set(message->fields, "thinking", reasoning);
      }
      Set(message->fields, "reasoning_content", reasoning);
      return OkStatus();
    }
    return OkStatus();
  }

  Status AddToolCalls(const json::object& source, const std::string& path, Message* message) {
    const json::value* calls = Member(source, "tool_calls");
    if (calls == nullptr) return OkStatus();
    if (message->role != "assistant") {
      return InvalidArgument("{}.tool_calls belongs to assistant messages, not to {}", path,
                             message->role);
    }
    if (!calls->is_array()) {
      return InvalidArgument("{}.tool_calls must be an array, not {}", path, KindName(*calls));
    }
    // Templates ask whether there are calls by asking for the key.
    if (calls->get_array().empty()) return OkStatus();
    Value list = runtime_.NewList();
    for (size_t i = 0; i < calls->get_array().size(); ++i) {
      ASSIGN_OR_RETURN(Value call,
                       ToolCall(calls->get_array()[i], fmt::format("{}.tool_calls[{}]", path, i)));
      list.as<jinja::List>().items.push_back(std::move(call));
    }
    runtime_.Recharge(list);
    if (rules_.tool_calls) {
      Set(message->fields, "tool_calls", std::move(list));
      return Failure();
    }
    return CallsToText(list, message);
  }

  StatusOr<Value> ToolCall(const json::value& source, const std::string& path) {
    if (!source.is_object()) {
      return InvalidArgument("{} must be an object, not {}", path, KindName(source));
    }
    const json::object& object = source.get_object();
    ASSIGN_OR_RETURN(const json::string* id, StringMember(object, "id", path));
    ASSIGN_OR_RETURN(const json::string* type, StringMember(object, "type", path));
    if (type != nullptr && View(*type) != "function") {
      return InvalidArgument("{}.type is \"{}\"; only \"function\" is supported", path,
                             View(*type).substr(0, 64));
    }
    const json::value* function = Member(object, "function");
    if (function == nullptr || !function->is_object()) {
      return InvalidArgument("{}.function must be an object", path);
    }
    ASSIGN_OR_RETURN(const json::string* name,
                     StringMember(function->get_object(), "name", path + ".function"));
    if (name == nullptr) return InvalidArgument("{}.function.name is missing", path);
    const std::string given = id != nullptr ? std::string(View(*id)) : path;
    names_[given] = std::string(View(*name));
    Value call = runtime_.NewDict();
    if (id != nullptr || rules_.short_call_ids) {
      Set(call, "id", String(rules_.short_call_ids ? ShortId(given) : given, true));
    }
    Set(call, "type", String("function", false));
    Value inner = runtime_.NewDict();
    Set(inner, "name", String(View(*name), true));
    ASSIGN_OR_RETURN(Value arguments, CallArguments(function->get_object(), path));
    Set(inner, "arguments", std::move(arguments));
    Set(call, "function", std::move(inner));
    return call;
  }

  StatusOr<Value> CallArguments(const json::object& function, const std::string& path) {
    const json::value* source = Member(function, "arguments");
    Value arguments = runtime_.NewDict();
    std::optional<std::string_view> text;
    if (source != nullptr && source->is_string()) {
      text = View(source->get_string());
      const bool blank = text->find_first_not_of(" \t\r\n") == std::string_view::npos;
      if (blank) text = "{}";
      if (!runtime_.Reserve(text->size())) return Failure();
      if (!jinja::ParseJson(runtime_, *text, true, &arguments)) {
        return InvalidArgument("{}.function.arguments is not valid JSON: {}", path,
                               runtime_.error());
      }
    } else if (source != nullptr) {
      ASSIGN_OR_RETURN(arguments, Convert(*source));
    }
    if (!arguments.is_dict()) {
      return InvalidArgument("{}.function.arguments must be a JSON object", path);
    }
    if (!rules_.arguments_as_text) return arguments;
    if (text) return String(*text, true);
    Text written;
    if (!jinja::AppendJson(runtime_, arguments, jinja::JsonFormat(), &written)) return Failure();
    return runtime_.NewString(std::move(written));
  }

  // For a template that has no place for calls: they follow the text of the message.
  Status CallsToText(const Value& calls, Message* message) {
    Text text;
    const Value* content = message->fields.as<Dict>().Find("content");
    AppendContent(*content, &text);
    for (const Value& call : calls.as<jinja::List>().items) {
      const Dict& function = call.as<Dict>().Find("function")->as<Dict>();
      Value shown = runtime_.NewDict();
      Set(shown, "name", *function.Find("name"));
      Set(shown, "arguments", *function.Find("arguments"));
      if (!text.empty()) text.Append("\n", false);
      text.Append("<tool_call>\n", false);
      if (!jinja::AppendJson(runtime_, shown, jinja::JsonFormat(), &text)) return Failure();
      text.Append("\n</tool_call>", false);
    }
    Set(message->fields, "content", runtime_.NewString(std::move(text)));
    return Failure();
  }

  Status FinishToolResult(const json::object& source, const std::string& path, Message* message) {
    ASSIGN_OR_RETURN(const json::string* id, StringMember(source, "tool_call_id", path));
    ASSIGN_OR_RETURN(const json::string* name, StringMember(source, "name", path));
    if (id != nullptr) {
      const std::string given(View(*id));
      if (rules_.short_call_ids) {
        Set(message->fields, "tool_call_id", String(ShortId(given), true));
      }
      const auto known = names_.find(given);
      if (name == nullptr && known != names_.end()) {
        Set(message->fields, "name", String(known->second, true));
      }
    }
    if (rules_.tool_role) return Failure();
    Text text = Text::Trusted("<tool_response>\n");
    AppendContent(*message->fields.as<Dict>().Find("content"), &text);
    text.Append("\n</tool_response>", false);
    message->role = "user";
    message->tool_response = true;
    message->fields = runtime_.NewDict();
    Set(message->fields, "role", String("user", false));
    Set(message->fields, "content", runtime_.NewString(std::move(text)));
    return Failure();
  }

  // The text of a content value that this class has made.
  static void AppendContent(const Value& content, Text* out) {
    if (content.is_string()) out->Append(content.as<jinja::String>().text);
    if (!content.is_list()) return;
    for (const Value& part : content.as<jinja::List>().items) {
      out->Append(part.as<Dict>().Find("text")->as<jinja::String>().text);
    }
  }

  static const Value& ContentOf(const Message& message) {
    return *message.fields.as<Dict>().Find("content");
  }

  // Adds the text of one message to that of another.
  void AppendToContent(const Message& from, std::string_view separator, Message* to) {
    Text text;
    AppendContent(ContentOf(*to), &text);
    if (!text.empty()) text.Append(separator, false);
    AppendContent(ContentOf(from), &text);
    Set(to->fields, "content", runtime_.NewString(std::move(text)));
  }

  // Moves system texts to where the template shows them.
  void PlaceSystemTexts(std::vector<Message>* messages) {
    constexpr std::string_view kBetween = "\n\n";
    std::vector<Message> placed;
    std::optional<Message> waiting;  // system texts for the next user message
    bool leading = true;
    for (Message& message : *messages) {
      const bool system = message.role == "system";
      leading = leading && system;
      if (system && (!rules_.system_role || (!leading && !rules_.system_later))) {
        if (waiting) {
          AppendToContent(message, kBetween, &*waiting);
        } else {
          waiting = std::move(message);
        }
      } else if (system && leading && !placed.empty() && !rules_.system_several) {
        AppendToContent(message, kBetween, &placed.back());
      } else {
        if (message.role == "user" && waiting) {
          AppendToContent(message, kBetween, &*waiting);
          Set(message.fields, "content", ContentOf(*waiting));
          waiting.reset();
        }
        placed.push_back(std::move(message));
      }
    }
    if (waiting) PlaceLastSystemText(*std::move(waiting), &placed);
    *messages = std::move(placed);
  }

  // No user message follows: the text goes into the last one, or into one of its own.
  void PlaceLastSystemText(Message text, std::vector<Message>* placed) {
    const auto user = std::find_if(placed->rbegin(), placed->rend(),
                                   [](const Message& message) { return message.role == "user"; });
    if (user != placed->rend()) {
      AppendToContent(text, "\n\n", &*user);
      return;
    }
    text.role = "user";
    Set(text.fields, "role", String("user", false));
    placed->insert(placed->begin(), std::move(text));
  }

  Runtime& runtime_;
  const MessageRules& rules_;
  std::map<std::string, std::string> names_;  // of functions, by the id of their call
};

}  // namespace

bool IsKnownRole(std::string_view role) {
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

StatusOr<Value> NormalizeMessages(Runtime& runtime, const json::array& messages,
                                  const MessageRules& rules) {
  return Normalizer(runtime, rules).Run(messages);
}

Status CheckTools(const json::value& tools) {
  if (tools.is_null()) return OkStatus();
  if (!tools.is_array()) {
    return InvalidArgument("tools must be an array, not {}", KindName(tools));
  }
  for (size_t i = 0; i < tools.get_array().size(); ++i) {
    const json::value& tool = tools.get_array()[i];
    const std::string path = fmt::format("tools[{}]", i);
    if (!tool.is_object()) {
      return InvalidArgument("{} must be an object, not {}", path, KindName(tool));
    }
    ASSIGN_OR_RETURN(const json::string* type, StringMember(tool.get_object(), "type", path));
    if (type == nullptr || View(*type) != "function") {
      return InvalidArgument("{}.type must be \"function\"", path);
    }
    const json::value* function = Member(tool.get_object(), "function");
    if (function == nullptr || !function->is_object()) {
      return InvalidArgument("{}.function must be an object", path);
    }
    ASSIGN_OR_RETURN(const json::string* name,
                     StringMember(function->get_object(), "name", path + ".function"));
    if (name == nullptr || name->empty()) {
      return InvalidArgument("{}.function.name is missing", path);
    }
    const json::value* parameters = Member(function->get_object(), "parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      return InvalidArgument("{}.function.parameters must be an object, not {}", path,
                             KindName(*parameters));
    }
  }
  return OkStatus();
}

}  // namespace polysil

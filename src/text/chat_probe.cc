#include "text/chat_probe.h"

#include <boost/json/object.hpp>
#include <boost/json/string.hpp>

namespace polysil {
namespace {

namespace json = boost::json;

// Words that no template contains.
constexpr const char* kSystem = "Zsystemprobe";
constexpr const char* kSecond = "Zsecondprobe";
constexpr const char* kUser = "Zuserprobe";
constexpr const char* kAnswer = "Zanswerprobe";
constexpr const char* kResult = "Zresultprobe";
constexpr const char* kCallName = "zcallprobe";
constexpr const char* kToolName = "ztoolprobe";
constexpr const char* kArgumentKey = "zkeyprobe";
constexpr const char* kArgumentValue = "zvalueprobe";

json::object Message(const char* role, json::value content) {
  return {{"role", role}, {"content", std::move(content)}};
}

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class Prober final {
 public:
  Prober(const ProbeRender& render, bool mentions_developer)
      : render_(render), mentions_developer_(mentions_developer) {}

  ProbeResult Run() {
    ProbeAbsent();
    ProbeSystem();
    ProbeParts();
    // Some show tools in the system turn only.
    result_.tools =
        Has(TryRender({Message("user", kUser)}, Tools()).text, kToolName) ||
        Has(TryRender({Message("system", kSystem), Message("user", kUser)}, Tools()).text,
            kToolName);
    ProbeToolCalls();
    return result_;
  }

 private:
  struct Outcome {
    bool ok = false;
    std::string text;
  };

  Outcome TryRender(const json::array& messages, const json::value& tools = nullptr) {
    StatusOr<std::string> text = render_(messages, tools, result_.rules, result_.absent);
    return text.ok() ? Outcome{true, *std::move(text)} : Outcome{};
  }

  static json::value Tools() {
    const json::object property = {{"type", "string"}, {"description", "A value."}};
    const json::object parameters = {{"type", "object"},
                                     {"properties", json::object{{"value", property}}},
                                     {"required", json::array{"value"}}};
    const json::object function = {
        {"name", kToolName}, {"description", "A tool."}, {"parameters", parameters}};
    return json::array{json::object{{"type", "function"}, {"function", function}}};
  }

  void ProbeAbsent() {
    for (const AbsentVariables absent :
         {AbsentVariables{true, true}, AbsentVariables{false, true}, AbsentVariables{true, false},
          AbsentVariables{false, false}}) {
      result_.absent = absent;
      if (Has(TryRender({Message("user", kUser)}).text, kUser)) return;
    }
    result_.absent = AbsentVariables{};
  }

  void ProbeSystem() {
    MessageRules& rules = result_.rules;
    rules.system_role =
        Has(TryRender({Message("system", kSystem), Message("user", kUser)}).text, kSystem);
    if (!rules.system_role) return;
    // Where the template refuses, its own words reach the client. Where it drops, we must act.
    const Outcome several =
        TryRender({Message("system", kSystem), Message("system", kSecond), Message("user", kUser)});
    rules.system_several =
        !several.ok || (Has(several.text, kSystem) && Has(several.text, kSecond));
    const Outcome later = TryRender({Message("user", kUser), Message("assistant", kAnswer),
                                     Message("system", kSystem), Message("user", kSecond)});
    rules.system_later = !later.ok || Has(later.text, kSystem);
    if (!mentions_developer_) return;
    rules.developer_role = true;
    rules.developer_role =
        Has(TryRender({Message("developer", kSystem), Message("user", kUser)}).text, kSystem);
  }

  void ProbeParts() {
    result_.rules.content_parts = true;
    const json::array parts = {json::object{{"type", "text"}, {"text", kUser}},
                               json::object{{"type", "text"}, {"text", kSecond}}};
    const std::string text = TryRender({Message("user", parts)}).text;
    // A template that prints the list shows its keys.
    result_.rules.content_parts =
        Has(text, kUser) && Has(text, kSecond) && !Has(text, "'type'") && !Has(text, "\"type\"");
  }

  static json::array CallChat() {
    const json::object function = {{"name", kCallName},
                                   {"arguments", json::object{{kArgumentKey, kArgumentValue}}}};
    const json::object call = {
        {"id", "call_0123456789"}, {"type", "function"}, {"function", function}};
    json::object result = Message("tool", kResult);
    result["tool_call_id"] = "call_0123456789";
    return {Message("user", kUser),
            json::object{{"role", "assistant"}, {"tool_calls", json::array{call}}},
            std::move(result)};
  }

  // The more of the call is there, and the cleaner, the higher.
  static int CallScore(const Outcome& outcome) {
    const std::string& text = outcome.text;
    const bool arguments = Has(text, kArgumentKey) && Has(text, kArgumentValue);
    if (!outcome.ok || !Has(text, kCallName) || !arguments) return 0;
    const std::string key = kArgumentKey;
    // JSON text within a JSON string, a Python dict, HTML.
    const bool clean =
        !Has(text, "\\\"" + key) && !Has(text, "'" + key + "'") && !Has(text, "&#34;");
    return 1 + (clean ? 4 : 0) + (Has(text, kResult) ? 2 : 0) + (Has(text, "None") ? 0 : 1);
  }

  void ProbeToolCalls() {
    MessageRules& rules = result_.rules;
    MessageRules best = rules;
    int best_score = 0;
    bool result_shown = false;
    for (const bool short_ids : {false, true}) {
      for (const bool null_content : {false, true}) {
        for (const bool as_text : {false, true}) {
          for (const bool with_tools : {true, false}) {
            rules.short_call_ids = short_ids;
            rules.null_content = null_content;
            rules.arguments_as_text = as_text;
            const Outcome outcome =
                TryRender(CallChat(), with_tools ? Tools() : json::value(nullptr));
            result_shown |= Has(outcome.text, kResult);
            if (const int score = CallScore(outcome); score > best_score) {
              best_score = score;
              best = rules;
            }
          }
        }
      }
    }
    rules = best;
    rules.tool_calls = best_score > 0;
    if (!rules.tool_calls) {
      // Whether results are shown, once calls are text.
      result_shown = Has(TryRender(CallChat()).text, kResult);
    }
    rules.tool_role = result_shown;
  }

  const ProbeRender& render_;
  const bool mentions_developer_;
  ProbeResult result_;
};

}  // namespace

ProbeResult ProbeTemplate(const ProbeRender& render, bool mentions_developer) {
  return Prober(render, mentions_developer).Run();
}

}  // namespace polysil

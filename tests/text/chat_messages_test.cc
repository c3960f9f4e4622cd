// What becomes of the messages of a client before a template sees them.
#include "text/chat_messages.h"

#include <gtest/gtest.h>

#include "text/chat_runner.h"

namespace polysil {
namespace {

namespace json = boost::json;

// CHT-02: no role but the known ones, and no message is dropped.
TEST(ChatMessages, UnknownRolesAreRefused) {
  for (const auto& name : {"smollm2-1.7b-instruct", "qwen2.5-7b-instruct", "phi3-mini-4k"}) {
    const auto chat_template = Published(name);
    for (const std::string role : {"assistent", "User", "ai", "", "critic", "<|im_end|>"}) {
      const std::string messages =
          R"([{"role":"user","content":"a"},{"role":")" + role + R"(","content":"b"}])";
      EXPECT_TRUE(
          Prompt(*chat_template, messages).starts_with("error: messages[1].role is \"" + role))
          << Prompt(*chat_template, messages);
    }
    EXPECT_EQ(Prompt(*chat_template, R"([{"role":5,"content":"b"}])"),
              "error: messages[0].role must be a string, not a number");
    EXPECT_EQ(Prompt(*chat_template, R"([{"content":"b"}])"), "error: messages[0].role is missing");
  }
}

TEST(ChatMessages, DeveloperMessagesAreSystemMessagesUnlessTheTemplateKnowsThem) {
  const std::string_view messages =
      R"([{"role":"developer","content":"D"},{"role":"user","content":"U"}])";
  EXPECT_EQ(Prompt(*Published("qwen3-0.6b"), messages),
            "<|im_start|>system\n[D]<|im_end|>\n<|im_start|>user\n[U]<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_NE(Prompt(*Published("gpt-oss-120b"), messages)
                .find("<|start|>developer<|message|># Instructions\n\n[D]"),
            std::string::npos);
}

TEST(ChatMessages, SystemTextsAreNeverDropped) {
  constexpr std::string_view kNoSystem =
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
      "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const std::string_view chat =
      R"([{"role":"system","content":"S"},{"role":"system","content":"T"},
          {"role":"user","content":"U"},{"role":"assistant","content":"A"},
          {"role":"system","content":"X"},{"role":"user","content":"V"}])";
  const auto no_system = Create(kNoSystem);
  EXPECT_FALSE(no_system->caps().system_role);
  EXPECT_EQ(Prompt(*no_system, chat), "[user][S]\n\n[T]\n\n[U][assistant][A][user][X]\n\n[V]");
  EXPECT_EQ(Prompt(*no_system, R"([{"role":"system","content":"S"}])"), "[user][S]");
  EXPECT_EQ(Prompt(*no_system, R"([{"role":"user","content":"U"},{"role":"system","content":"S"},
                                   {"role":"assistant","content":"A"}])"),
            "[user][U]\n\n[S][assistant][A]");
  EXPECT_EQ(Prompt(*no_system, R"([{"role":"system","content":"S"},
                                   {"role":"assistant","content":"A"}])"),
            "[user][S][assistant][A]");
  // One that shows the first message's system text only.
  constexpr std::string_view kFirstOnly =
      "{% if messages[0].role == 'system' %}<{{ messages[0].content }}>{% endif %}"
      "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  EXPECT_EQ(Prompt(*Create(kFirstOnly), chat),
            "<[S]\n\n[T]>[user][U][assistant][A][user][X]\n\n[V]");
  // One that keeps the last.
  constexpr std::string_view kLastOnly =
      "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}"
      "{% set ns.s = m.content %}{% endif %}{% endfor %}<{{ ns.s }}>"
      "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  EXPECT_EQ(Prompt(*Create(kLastOnly),
                   R"([{"role":"system","content":"S"},{"role":"system","content":"T"},
                       {"role":"user","content":"U"}])"),
            "<[S]\n\n[T]>[user][U]");
  // One that can do all of it gets it unchanged.
  EXPECT_EQ(Prompt(*Create(kPlain), chat),
            "<system>[S]</system><system>[T]</system><user>[U]</user><assistant>[A]</assistant>"
            "<system>[X]</system><user>[V]</user><assistant>");
}

// CHT-08: null content and templates that slice, search or join it.
TEST(ChatMessages, NullContentIsAnEmptyString) {
  const auto chat_template = Create(
      "{% for m in messages %}{{ m.content[:3] }}{{ '</think>' in m.content }}{{ m.content + '|' }}"
      "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments|tojson }}"
      "{% endfor %}{% endfor %}");
  EXPECT_EQ(Prompt(*chat_template,
                   R"([{"role":"user","content":"U"},{"role":"assistant","content":null,
                       "tool_calls":[{"id":"1","type":"function",
                                      "function":{"name":"f","arguments":"{\"a\":1}"}}]},
                       {"role":"tool","tool_call_id":"1","content":"R"}])"),
            "[U]False[U]|False|[f]{\"[a]\": [1]}[R]False[R]|");
}

// A template of the first DeepSeek kind shows calls only where the content is none, and wants their
// arguments as text.
TEST(ChatMessages, TemplatesThatWantNullContentGetIt) {
  const auto chat_template = Create(
      "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
      "{% for c in m.tool_calls %}{{ '<call>' + c.function.name + c.function.arguments }}"
      "{% endfor %}{% elif m.content is not none %}{{ '<' + m.role + '>' + m.content }}{% endif %}"
      "{% endfor %}");
  EXPECT_TRUE(chat_template->caps().arguments_as_text);
  EXPECT_EQ(Prompt(*chat_template,
                   R"([{"role":"user","content":"U"},{"role":"assistant","content":null,
                       "tool_calls":[{"id":"1","type":"function",
                                      "function":{"name":"f","arguments":"{ \"a\":1 }"}}]}])"),
            "<user>[U]<call>[f{ \"a\":1 }]");
}

// CHT-09: an assistant message without text is an empty one; other messages need a content.
TEST(ChatMessages, AssistantMessagesMayBeEmpty) {
  const auto chat_template = Create(kPlain);
  for (const std::string message :
       {R"({"role":"assistant"})", R"({"role":"assistant","content":""})",
        R"({"role":"assistant","content":null})", R"({"role":"assistant","content":[]})",
        R"({"role":"assistant","content":"","tool_calls":[]})",
        R"({"role":"assistant","content":"","tool_calls":null})"}) {
    EXPECT_EQ(Prompt(*chat_template, "[" + message + "]"), "<assistant></assistant><assistant>");
  }
  EXPECT_EQ(Prompt(*chat_template, R"([{"role":"assistant","content":" \n"}])"),
            "<assistant>[ \n]</assistant><assistant>");
  EXPECT_EQ(Prompt(*chat_template, R"([{"role":"assistant","reasoning":"R"}])"),
            "<assistant>?[R]</assistant><assistant>");
  for (const std::string role : {"user", "system", "tool"}) {
    EXPECT_EQ(Prompt(*chat_template, R"([{"role":")" + role + R"(","content":null}])"),
              "error: messages[0].content is missing");
  }
}

TEST(ChatMessages, ShapesAreCheckedAndErrorsNameTheField) {
  const auto chat_template = Create(kPlain);
  const std::string calls = R"([{"role":"assistant","tool_calls":)";
  for (const auto& [messages, error] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "messages must not be empty"},
           {R"(["x"])", "messages[0] must be an object, not a string"},
           {R"([{"role":"user","content":"a"},7])", "messages[1] must be an object, not a number"},
           {R"([{"role":"user","content":5}])",
            "messages[0].content must be a string or an array of parts, not a number"},
           {R"([{"role":"user","content":{"text":"x"}}])",
            "messages[0].content must be a string or an array of parts, not an object"},
           {R"([{"role":"user","content":["x"]}])",
            "messages[0].content[0] must be an object, not a string"},
           {R"([{"role":"user","content":[{"text":"x"}]}])",
            "messages[0].content[0].type is missing"},
           {R"([{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url"}]}])",
            "messages[0].content[1].type is \"image_url\"; only text parts are supported"},
           {R"([{"role":"user","content":[{"type":"text"}]}])",
            "messages[0].content[0].text is missing"},
           {R"([{"role":"user","content":[{"type":"text","text":[]}]}])",
            "messages[0].content[0].text must be a string, not an array"},
           {R"([{"role":"assistant","content":"","reasoning_content":1}])",
            "messages[0].reasoning_content must be a string, not a number"},
           {R"([{"role":"user","content":"x","tool_calls":[{}]}])",
            "messages[0].tool_calls belongs to assistant messages, not to user"},
           {calls + "{}}]", "messages[0].tool_calls must be an array, not an object"},
           {calls + "[1]}]", "messages[0].tool_calls[0] must be an object, not a number"},
           {calls + R"([{"type":"x"}]}])",
            "messages[0].tool_calls[0].type is \"x\"; only \"function\" is supported"},
           {calls + R"([{"type":"function"}]}])",
            "messages[0].tool_calls[0].function must be an object"},
           {calls + R"([{"function":{}}]}])", "messages[0].tool_calls[0].function.name is missing"},
           {calls + R"([{"id":7,"function":{"name":"f"}}]}])",
            "messages[0].tool_calls[0].id must be a string, not a number"},
           {R"([{"role":"tool","content":"x","tool_call_id":7}])",
            "messages[0].tool_call_id must be a string, not a number"},
       }) {
    EXPECT_EQ(Prompt(*chat_template, messages), "error: " + error);
  }
  for (const auto& [tools, error] : std::vector<std::pair<std::string, std::string>>{
           {"{}", "tools must be an array, not an object"},
           {"[1]", "tools[0] must be an object, not a number"},
           {"[{}]", "tools[0].type must be \"function\""},
           {R"([{"type":"function"}])", "tools[0].function must be an object"},
           {R"([{"type":"function","function":{}}])", "tools[0].function.name is missing"},
           {R"([{"type":"function","function":{"name":"f","parameters":[]}}])",
            "tools[0].function.parameters must be an object, not an array"}}) {
    ChatInput input;
    input.tools = json::parse(tools);
    EXPECT_EQ(Prompt(*chat_template, kUser, std::move(input)), "error: " + error);
  }
}

TEST(ChatMessages, TextPartsAreJoinedUnlessTheTemplateTakesLists) {
  const std::string_view messages =
      R"([{"role":"user","content":[{"type":"text","text":"One "},{"type":"text","text":"two"}]}])";
  const auto joins = Create(kPlain);
  EXPECT_FALSE(joins->caps().content_parts);
  EXPECT_EQ(Prompt(*joins, messages), "<user>[One two]</user><assistant>");
  const auto lists = Create(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}");
  EXPECT_TRUE(lists->caps().content_parts);
  EXPECT_EQ(Prompt(*lists, messages), "<[One ]><[two]>");
}

// TOL-06: arguments of calls in the history.
TEST(ChatMessages, CallArgumentsAreObjectsOrRefusedWithTheirPath) {
  const auto items = Create(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v|tojson }}"
      "{% endfor %}{% endfor %}{% endfor %}");
  EXPECT_FALSE(items->caps().arguments_as_text);
  const auto text = Create(
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name + c.function.arguments }}{% endfor %}{% endfor %}");
  EXPECT_TRUE(text->caps().arguments_as_text);
  const auto with = [](const std::string& arguments) {
    return R"([{"role":"user","content":"U"},{"role":"assistant","content":"","tool_calls":[)"
           R"({"id":"1","type":"function","function":{"name":"f","arguments":)" +
           arguments + "}}]}]";
  };
  for (const std::string empty : {R"("")", R"("  ")", "null", "{}", R"("{}")"}) {
    EXPECT_EQ(Prompt(*items, with(empty)), "<user>[U]<assistant>[f]") << empty;
    const bool as_text = empty[0] == '"';
    EXPECT_EQ(Prompt(*text, with(empty)),
              as_text ? "<user>[U]<assistant>[f{}]" : "<user>[U]<assistant>[f]{}");
  }
  EXPECT_EQ(Prompt(*items, with(R"("{\"a\":[1,2.50,1e400],\"b\":{\"c\":null}}")")),
            "<user>[U]<assistant>[f] [a]=[[1], [2.5], [Infinity]] [b]={\"[c]\": null}");
  EXPECT_EQ(Prompt(*items, with(R"({"a":12345678901234567890})")),
            "<user>[U]<assistant>[f] [a]=[12345678901234567890]");
  EXPECT_EQ(Prompt(*items, with(R"("{\"a\":123456789012345678901234567890,\"a\":1.0}")")),
            "<user>[U]<assistant>[f] [a]=[1.0]");
  EXPECT_EQ(Prompt(*text, with(R"({"a":1,"b":[true]})")),
            "<user>[U]<assistant>[f]{\"[a]\": [1], \"[b]\": [[true]]}");
  EXPECT_EQ(Prompt(*text, with(R"("{\"a\":  1}")")), "<user>[U]<assistant>[f{\"a\":  1}]");
  for (const std::string broken :
       {R"("{\"city\": \"Par")", R"("{\"a\":1}{\"b\":2}")", R"("{a:1}")", R"("{'a':1}")"}) {
    EXPECT_TRUE(Prompt(*items, with(broken))
                    .starts_with("error: messages[1].tool_calls[0].function.arguments is not valid "
                                 "JSON: "))
        << Prompt(*items, with(broken));
  }
  for (const std::string other : {R"("\"Beijing\"")", R"("[\"x\"]")", R"(["x"])", "5", "true"}) {
    EXPECT_EQ(Prompt(*items, with(other)),
              "error: messages[1].tool_calls[0].function.arguments must be a JSON object");
  }
}

constexpr std::string_view kCallChat =
    R"([{"role":"user","content":"U"},
        {"role":"assistant","content":"T","tool_calls":[
          {"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
          {"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"call_2","content":"R2"},
        {"role":"tool","tool_call_id":"call_1","name":"own","content":"R1"},
        {"role":"tool","tool_call_id":"other","content":"R0"}])";

TEST(ChatMessages, ToolResultsGetTheNameOfTheirCall) {
  EXPECT_EQ(Prompt(*Create(kPlain), kCallChat),
            "<user>[U]</user><assistant>[T]([call_1] [f] {\"[a]\": [1]})([call_2] [g] {})"
            "</assistant><tool>[R2]@[g]#[call_2]</tool><tool>[R1]@[own]#[call_1]</tool>"
            "<tool>[R0]#[other]</tool><assistant>");
}

TEST(ChatMessages, MistralGetsIdsOfNineLettersAndDigits) {
  const std::string chat = R"([{"role":"user","content":"U"},
      {"role":"assistant","content":"","tool_calls":[{"id":"call_0123456789","type":"function",
        "function":{"name":"f","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"call_0123456789","content":"R"}])";
  const std::string prompt = Prompt(*Published("mistral-7b-instruct-v0.3"), chat);
  const size_t at = prompt.find("\"id\": \"[");
  ASSERT_NE(at, std::string::npos) << prompt;
  const std::string id = prompt.substr(at + 8, 9);
  EXPECT_EQ(id.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
            std::string::npos);
  EXPECT_NE(prompt.find("\"call_id\": \"[" + id), std::string::npos) << prompt;
  // An id that fits already is kept.
  std::string fitting = chat;
  for (size_t p; (p = fitting.find("call_0123456789")) != std::string::npos;) {
    fitting.replace(p, 15, "aB3dE5gH9");
  }
  EXPECT_NE(Prompt(*Published("mistral-7b-instruct-v0.3"), fitting).find("\"id\": \"[aB3dE5gH9]"),
            std::string::npos);
}

// A template without a place for calls and results: they become text, nothing is lost.
TEST(ChatMessages, CallsAndResultsBecomeTextWhereTheTemplateHasNoPlaceForThem) {
  const auto chat_template = Create(
      "{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system'] %}"
      "{{ raise_exception('bad role') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  EXPECT_EQ(Prompt(*chat_template, kCallChat),
            "<user>[U]<assistant>[T]\n<tool_call>\n{\"name\": \"[f]\", \"arguments\": "
            "{\"[a]\": [1]}}\n</tool_call>\n<tool_call>\n{\"name\": \"[g]\", \"arguments\": {}}\n"
            "</tool_call><user><tool_response>\n[R2]\n</tool_response>\n<tool_response>\n[R1]\n"
            "</tool_response>\n<tool_response>\n[R0]\n</tool_response>");
  // SmolLM2's shows any role but no calls.
  EXPECT_NE(Prompt(*Create(kSmolLm2Template), kCallChat).find("<|im_start|>tool\n[R2]<|im_end|>"),
            std::string::npos);
  EXPECT_NE(Prompt(*Create(kSmolLm2Template), kCallChat).find("<tool_call>\n{\"name\": \"[f]\""),
            std::string::npos);
}

TEST(ChatMessages, AbsentToolsAreWhatTheTemplateCopesWith) {
  // Fails on none.
  EXPECT_EQ(Prompt(*Create("{{ messages[0].content }}{% if tools is defined %}{{ tools|length }}"
                           "{% endif %}"),
                   kUser),
            "[Hi]");
  // Fails where it is undefined.
  EXPECT_EQ(Prompt(*Create("{{ messages[0].content }}{% if tools is not none %}{{ tools[0].x }}"
                           "{% endif %}{{ documents is none }}"),
                   kUser),
            "[Hi]True");
  ChatInput empty;
  empty.tools = json::array();
  EXPECT_EQ(Prompt(*Create("{{ messages[0].content }}{{ tools is none }}"), kUser, empty),
            "[Hi]True");
}

TEST(ChatMessages, ReasoningIsKnownByAllItsNames) {
  const auto chat_template = Create(
      "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{{ m.thinking }}{% endfor "
      "%}");
  for (const std::string name : {"reasoning_content", "thinking", "reasoning"}) {
    EXPECT_EQ(
        Prompt(*chat_template, R"([{"role":"assistant","content":"A",")" + name + R"(":"R"}])"),
        "[ARR]");
  }
}

}  // namespace
}  // namespace polysil

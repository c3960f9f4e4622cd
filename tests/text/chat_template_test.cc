// ChatTemplate with the template of SmolLM2: the reference's text for every chat, and the token ids
// that follow when only the template's own bytes may become control tokens.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "text/golden_files.h"

namespace polysil {
namespace {

namespace json = boost::json;

constexpr std::string_view kSmolLm2Template =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

std::shared_ptr<const ChatTemplate> Create(std::string_view source) {
  auto created = ChatTemplate::Create(std::string(source), {.eos_token = "<|im_end|>"});
  CHECK(created.ok(), "{}", Message(created.status()));
  return *std::move(created);
}

json::array Messages(std::string_view text) {
  return json::parse(json::string_view(text.data(), text.size())).as_array();
}

StatusOr<RenderedChat> RenderText(const ChatTemplate& chat_template, std::string_view messages) {
  ChatInput input;
  input.messages = Messages(messages);
  return chat_template.Render(input);
}

// The bytes of the spans, each in brackets.
std::string Untrusted(const RenderedChat& chat) {
  std::string shown;
  for (const ByteSpan& span : chat.untrusted) {
    shown += "[" + chat.text.substr(span.begin, span.end - span.begin) + "]";
  }
  return shown;
}

TEST(ChatTemplateSmolLm2, RendersEveryReferenceChat) {
  const std::string path = SharedGolden("smollm2/chat.jsonl");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto chat_template = Create(kSmolLm2Template);
  size_t rendered = 0;
  size_t refused = 0;
  for (const auto& line : ReadJsonLines(path)) {
    const auto result = chat_template->RenderRaw(
        {{"messages", line.at("messages")},
         {"add_generation_prompt", line.at("add_generation_prompt")}});
    if (line.as_object().contains("error")) {
      ++refused;
      ASSERT_FALSE(result.ok()) << line.at("id");
      EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(Message(result.status()).find(AsString(line.at("error_text"))), std::string::npos)
          << Message(result.status());
      continue;
    }
    ++rendered;
    ASSERT_TRUE(result.ok()) << line.at("id") << Message(result.status());
    EXPECT_EQ(result->text, AsString(line.at("text"))) << line.at("id");
    EXPECT_EQ(SmolLm2()->EncodeRendered(result->text, result->untrusted, true),
              AsIds(line.at("ids_safe")))
        << line.at("id");
  }
  EXPECT_EQ(rendered, 106u);
  EXPECT_EQ(refused, 8u);
}

TEST(ChatTemplateSmolLm2, RendersAChat) {
  const auto chat_template = Create(kSmolLm2Template);
  const auto chat = RenderText(*chat_template, R"([{"role":"user","content":"Hello!"}])");
  ASSERT_TRUE(chat.ok()) << Message(chat.status());
  EXPECT_EQ(chat->text,
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Untrusted(*chat), "[Hello!]");
}

}  // namespace
}  // namespace polysil

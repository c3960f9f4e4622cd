// ManualRig: the text service over a manual FakeEngine: the test is the engine's output thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakes/fake_engine.h"
#include "session/byte_tokenizer.h"
#include "session/collect_sink.h"
#include "session/text_service.h"

namespace polysil {

inline OutputTokens Tokens(std::vector<TokenId> ids) {
  OutputTokens tokens;
  for (const TokenId id : ids) tokens.push_back({.id = id, .logprobs = std::nullopt});
  return tokens;
}

inline std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

struct ManualRig {
  explicit ManualRig(FakeEngineOptions options = {.manual = true},
                     std::shared_ptr<const Tokenizer> tokenizer = std::make_shared<ByteTokenizer>())
      : engine(std::move(options)) {
    TextModel model{.names = {"test-model", "alias"}, .tokenizer = std::move(tokenizer)};
    model.chat_template = ChatmlTemplate();
    service = TextService::Create({.seed_source = [this] { return next_seed++; }}, std::move(model),
                                  engine, clock)
                  .value();
  }

  Status Start(TextCall call) {
    StatusOr<std::shared_ptr<TextCallHandle>> started = service->Start(std::move(call), sink);
    if (!started.ok()) return started.status();
    handle = *std::move(started);
    return OkStatus();
  }
  RequestId id(size_t prompt_index = 0) const { return engine.submitted().at(prompt_index).id; }
  void Give(std::vector<TokenId> ids, std::optional<FinishReason> finish = std::nullopt,
            int32_t sequence_index = 0, size_t prompt_index = 0) {
    SequenceOutput output;
    output.sequence_index = sequence_index;
    output.tokens = Tokens(std::move(ids));
    output.finish = finish;
    engine.Deliver(id(prompt_index), std::move(output));
  }

  SteadyClock clock;
  uint64_t next_seed = 1000;
  FakeEngine engine;
  std::shared_ptr<CollectSink> sink = std::make_shared<CollectSink>();
  std::unique_ptr<TextService> service;
  std::shared_ptr<TextCallHandle> handle;
};

inline TextCall Ask(std::string prompt) {
  TextCall call;
  call.prompts.emplace_back(std::move(prompt));
  return call;
}

inline ChatInput Chat(std::initializer_list<boost::json::value> messages) {
  ChatInput chat;
  for (const boost::json::value& message : messages) chat.messages.push_back(message);
  return chat;
}

}  // namespace polysil

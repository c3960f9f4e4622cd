// GatewayRig: the HTTP face on a free loopback port, over the text service and a FakeEngine.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "fakes/fake_engine.h"
#include "gateway/http_client.h"
#include "gateway/http_gateway.h"
#include "session/byte_tokenizer.h"
#include "session/text_service.h"
#include "session/text_slot.h"

namespace polysil {

// Every sequence says this and ends.
inline std::function<std::vector<TokenId>(const Request&, int32_t)> Say(std::string text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  ids.push_back(ByteTokenizer::kTurnEnd);
  return [ids](const Request&, int32_t) { return ids; };
}

struct GatewayRig {
  explicit GatewayRig(FakeEngineOptions engine_options = {.script = Say("Hello.")},
                      HttpGatewayOptions options = {}, TextServiceOptions text_options = {})
      : engine(std::move(engine_options)) {
    SetLogLevel(LogLevel::kOff);
    TextModel model{.names = {"test-model", "org/alias"},
                    .tokenizer = std::make_shared<ByteTokenizer>()};
    model.chat_template = ChatmlTemplate();
    service = TextService::Create(std::move(text_options), std::move(model), engine, clock).value();
    options.address = "127.0.0.1:0";
    options.version = "1.2.3";
    slot.Fill(*service);
    gateway = HttpGateway::Create(std::move(options), slot).value();
    gateway->Start();
  }

  HttpAnswer Post(std::string_view path, std::string_view body, std::string_view headers = "") {
    HttpClient client(gateway->port());
    client.Post(path, body, headers);
    return client.Receive();
  }
  HttpAnswer Get(std::string_view path) {
    HttpClient client(gateway->port());
    client.Get(path);
    return client.Receive();
  }

  SteadyClock clock;
  FakeEngine engine;
  TextSlot slot;
  std::unique_ptr<TextService> service;
  std::unique_ptr<HttpGateway> gateway;
};

}  // namespace polysil

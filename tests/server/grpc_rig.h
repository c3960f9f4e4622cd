// GrpcRig: the gRPC face on a free loopback port, over the text service and a FakeEngine, with
// stubs.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "fakes/fake_engine.h"
#include "polysil/v1/admin.grpc.pb.h"
#include "polysil/v1/inference.grpc.pb.h"
#include "server/grpc_server.h"
#include "session/byte_tokenizer.h"
#include "session/text_service.h"
#include "session/text_slot.h"

namespace polysil {

inline constexpr TokenId kEnd = ByteTokenizer::kTurnEnd;

inline std::function<std::vector<TokenId>(const Request&, int32_t)> Say(std::string text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  ids.push_back(kEnd);
  return [ids](const Request&, int32_t) { return ids; };
}

inline FakeEngineOptions EndlessEngine() {
  FakeEngineOptions options{
      .script = [](const Request&, int32_t) { return std::vector<TokenId>{'a'}; }};
  options.limits.context_tokens_max = 1'000'000'000;
  options.limits.kv_tokens_max = 1'000'000'000;
  return options;
}

struct GenerateResult {
  grpc::Status status;
  std::vector<v1::Delta> deltas;
  std::optional<v1::Usage> usage;
  int messages = 0;

  std::string Text(int32_t index = 0) const {
    std::string text;
    for (const v1::Delta& delta : deltas) {
      if (delta.index() == index) text += delta.prompt_text() + delta.text();
    }
    return text;
  }
};

struct GrpcRig {
  explicit GrpcRig(FakeEngineOptions engine_options = {.script = Say("Hello.")},
                   GrpcServerOptions options = {}, TextServiceOptions text_options = {})
      : engine(std::move(engine_options)) {
    SetLogLevel(LogLevel::kOff);
    TextModel model{.names = {"test-model", "alias"},
                    .tokenizer = std::make_shared<ByteTokenizer>()};
    model.chat_template = ChatmlTemplate();
    service = TextService::Create(std::move(text_options), std::move(model), engine, clock).value();
    options.address = "127.0.0.1:0";
    options.version = "1.2.3";
    options.health_interval = std::chrono::milliseconds(5);
    slot.Fill(*service);
    server = GrpcServer::Create(std::move(options), slot).value();
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    channel =
        grpc::CreateCustomChannel(server->address(), grpc::InsecureChannelCredentials(), arguments);
    inference = v1::Inference::NewStub(channel);
    admin = v1::Admin::NewStub(channel);
  }

  GenerateResult Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);  // over a connection that a test broke, too
    return Generate(request, context);
  }
  GenerateResult Generate(const v1::GenerateRequest& request, grpc::ClientContext& context) {
    GenerateResult result;
    const auto reader = inference->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      ++result.messages;
      EXPECT_FALSE(result.usage.has_value());  // it is the last
      if (response.has_delta()) result.deltas.push_back(response.delta());
      if (response.has_usage()) result.usage = response.usage();
    }
    result.status = reader->Finish();
    return result;
  }

  SteadyClock clock;
  FakeEngine engine;
  TextSlot slot;
  std::unique_ptr<TextService> service;
  std::unique_ptr<GrpcServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Admin::Stub> admin;
};

inline v1::GenerateRequest Ask(const std::string& text) {
  v1::GenerateRequest request;
  request.mutable_prompt()->set_text(text);
  return request;
}

}  // namespace polysil

// OPS-05: the gRPC face before there is a text service, that is while the model loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/grpc_rig.h"
#include "server/raw_call.h"

namespace polysil {
namespace {

using testing::HasSubstr;

// A face whose slot is empty; `rig` has the service to fill it with.
struct LoadingGrpc {
  LoadingGrpc() {
    channel = grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials());
    inference = v1::Inference::NewStub(channel);
    admin = v1::Admin::NewStub(channel);
  }

  GrpcRig rig;
  TextSlot slot;
  std::unique_ptr<GrpcServer> server =
      GrpcServer::Create({.address = "127.0.0.1:0", .version = "1.2.3"}, slot).value();
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Admin::Stub> admin;
};

void ExpectLoading(const grpc::Status& status, const grpc::ClientContext& context) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("the model is being loaded"));
  EXPECT_EQ(context.GetServerTrailingMetadata().count("retry-after"), 1U);
}

TEST(LoadingGrpc, CallsAreUnavailableAndSayWhy) {
  LoadingGrpc loading;
  {
    grpc::ClientContext context;
    const auto reader = loading.inference->Generate(&context, Ask("hi"));
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    ExpectLoading(reader->Finish(), context);
  }
  {
    grpc::ClientContext context;
    const auto reader = loading.admin->WatchKvEvents(&context, v1::WatchKvEventsRequest());
    v1::KvEventBatch batch;
    EXPECT_FALSE(reader->Read(&batch));
    ExpectLoading(reader->Finish(), context);
  }
  const auto expect_loading = [](auto call) {
    grpc::ClientContext context;
    const grpc::Status status = call(&context);
    ExpectLoading(status, context);
  };
  v1::TokenizeResponse tokens;
  v1::DetokenizeResponse text;
  v1::Model model;
  v1::Stats stats;
  expect_loading([&](auto* context) { return loading.inference->Tokenize(context, {}, &tokens); });
  expect_loading([&](auto* context) { return loading.inference->Detokenize(context, {}, &text); });
  expect_loading([&](auto* context) { return loading.inference->GetModel(context, {}, &model); });
  expect_loading([&](auto* context) { return loading.admin->GetStats(context, {}, &stats); });
}

TEST(LoadingGrpc, HealthFollowsTheLoad) {
  LoadingGrpc loading;
  for (const char* service : {"", "polysil.v1.Inference", "polysil.v1.Admin"}) {
    EXPECT_FALSE(IsServing(loading.channel, service)) << service;
  }
  v1::Readiness readiness;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(loading.admin->GetReadiness(&context, {}, &readiness).ok());
    EXPECT_FALSE(readiness.ready());
    EXPECT_EQ(readiness.reason(), "the model is being loaded");
    EXPECT_EQ(readiness.version(), "1.2.3");
  }
  loading.slot.Fill(*loading.rig.service);
  loading.server->UpdateHealth();
  EXPECT_TRUE(IsServing(loading.channel, "polysil.v1.Inference"));
  grpc::ClientContext context;
  ASSERT_TRUE(loading.admin->GetReadiness(&context, {}, &readiness).ok());
  EXPECT_TRUE(readiness.ready());
  grpc::ClientContext generating;
  const auto reader = loading.inference->Generate(&generating, Ask("hi"));
  v1::GenerateResponse response;
  EXPECT_TRUE(reader->Read(&response));
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

// Nothing waits for the model: neither the end of the face nor of its feed of events.
TEST(LoadingGrpc, ItCanBeStopped) {
  LoadingGrpc loading;
  loading.server->Stop(std::chrono::seconds(60));
  grpc::ClientContext context;
  v1::Readiness readiness;
  EXPECT_FALSE(loading.admin->GetReadiness(&context, {}, &readiness).ok());
}

}  // namespace
}  // namespace polysil

// "retry-after": gRPC calls that may be tried again say when, as HTTP's do.
#include <gtest/gtest.h>

#include <future>

#include "server/grpc_rig.h"
#include "session/text_hold.h"

namespace polysil {
namespace {

// "" where there is none.
std::string RetryAfterOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto it = metadata.find("retry-after");
  return it == metadata.end() ? "" : std::string(it->second.data(), it->second.size());
}

// What a call of `request` ended with: its code, and when to try again.
using CallEnd = std::pair<grpc::StatusCode, std::string>;
CallEnd EndOfGenerate(GrpcRig& rig, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  const grpc::StatusCode code = rig.Generate(request, context).status.error_code();
  return {code, RetryAfterOf(context)};
}

TEST(RetryAfterGrpc, AFullQueueAndAServerThatDrains) {
  GrpcRig rig({.running_max = 1, .queue_max = 0, .script = Say("x")});
  rig.engine.AllowTokens(0);
  std::future<CallEnd> first =
      std::async(std::launch::async, [&] { return EndOfGenerate(rig, Ask("hi")); });
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(1));
  EXPECT_EQ(EndOfGenerate(rig, Ask("hi")), CallEnd(grpc::StatusCode::RESOURCE_EXHAUSTED, "7"));
  rig.engine.Drain();
  EXPECT_EQ(EndOfGenerate(rig, Ask("hi")), CallEnd(grpc::StatusCode::UNAVAILABLE, "7"));
  rig.engine.EndAll();
  EXPECT_EQ(first.get(), CallEnd(grpc::StatusCode::UNAVAILABLE, "7"));
}

TEST(RetryAfterGrpc, ADeadlineThatCannotBeMet) {
  GrpcRig rig({.manual = true});
  std::future<CallEnd> call =
      std::async(std::launch::async, [&] { return EndOfGenerate(rig, Ask("hi")); });
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(1));
  SequenceOutput refused{.finish = FinishReason::kError};
  refused.status = ResourceExhausted("its turn cannot come before its deadline");
  rig.engine.Deliver(rig.engine.submitted().at(0).id, std::move(refused));
  EXPECT_EQ(call.get(), CallEnd(grpc::StatusCode::RESOURCE_EXHAUSTED, "7"));
}

TEST(RetryAfterGrpc, NotReady) {
  GrpcRig rig;
  rig.engine.SetReadiness({.ready = false, .reason = "no step for 5 s"});
  EXPECT_EQ(EndOfGenerate(rig, Ask("hi")), CallEnd(grpc::StatusCode::UNAVAILABLE, "7"));
}

TEST(RetryAfterGrpc, TooManyLongTexts) {
  GrpcRig rig({.script = Say("x")}, {}, {.threads = 1, .queue_max = 1});
  TextHold hold(*rig.service);
  ASSERT_TRUE(rig.service->Run(1 << 20, {}, [] {}).ok());
  const v1::GenerateRequest long_text = Ask(std::string(100'000, 'a'));
  EXPECT_EQ(EndOfGenerate(rig, long_text), CallEnd(grpc::StatusCode::RESOURCE_EXHAUSTED, "7"));
  v1::TokenizeRequest request;
  *request.mutable_prompt() = long_text.prompt();
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(rig.inference->Tokenize(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(RetryAfterOf(context), "7");
  hold.Release();
}

// Trying again would change nothing.
TEST(RetryAfterGrpc, NotForOtherEnds) {
  GrpcRig rig;
  EXPECT_EQ(EndOfGenerate(rig, Ask("hi")), CallEnd(grpc::StatusCode::OK, ""));
  EXPECT_EQ(EndOfGenerate(rig, Ask("")), CallEnd(grpc::StatusCode::INVALID_ARGUMENT, ""));
  v1::GenerateRequest other = Ask("hi");
  other.set_model("gpt-4");
  EXPECT_EQ(EndOfGenerate(rig, other), CallEnd(grpc::StatusCode::NOT_FOUND, ""));
}

}  // namespace
}  // namespace polysil

// The rest of the gRPC face: limits, bad bytes, health, reflection, and the methods that only ask.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include "server/grpc_rig.h"
#include "server/raw_call.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// OPS-11.
TEST(GrpcServices, Limits) {
  GrpcRig rig({.script = Say("x")}, {.message_bytes_max = 100'000});
  EXPECT_EQ(rig.Generate(Ask(std::string(200'000, 'a'))).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext context;
  context.AddMetadata("big", std::string(100'000, 'a'));
  EXPECT_FALSE(rig.Generate(Ask("hi"), context).status.ok());
  // The server stays usable. That connection may have ended, and a call begun before we saw it too.
  grpc::Status after;
  do {
    after = rig.Generate(Ask("hi")).status;
  } while (after.error_code() == grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(after.ok()) << after.error_message();
}

TEST(GrpcServices, UnknownMethodsAndBadBytes) {
  GrpcRig rig;
  EXPECT_EQ(RawCall(rig.channel, "/polysil.v1.Inference/Nothing", "").first.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_FALSE(RawCall(rig.channel, "/polysil.v1.Inference/Tokenize", "\xFF\xFF\xFF").first.ok());
  // A string field that is not UTF-8: model, one byte.
  EXPECT_FALSE(RawCall(rig.channel, "/polysil.v1.Inference/GetModel", std::string("\x0a\x01\xff"))
                   .first.ok());
  EXPECT_TRUE(rig.Generate(Ask("hi")).status.ok());
}

TEST(GrpcServices, HealthFollowsReadiness) {
  GrpcRig rig;
  const auto wait = [&](bool wanted) {
    for (int i = 0; i < 100'000; ++i) {
      if (IsServing(rig.channel, "") == wanted &&
          IsServing(rig.channel, "polysil.v1.Inference") == wanted) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(wait(true));
  rig.engine.SetReadiness({.ready = false, .reason = "stalled"});
  EXPECT_TRUE(wait(false));
  rig.engine.SetReadiness({.ready = true, .reason = {}});
  EXPECT_TRUE(wait(true));
}

TEST(GrpcServices, ReflectionListsTheServices) {
  GrpcRig rig;
  // ServerReflectionRequest{list_services = 7: ""}; a stream of one request, read as a unary call.
  grpc::GenericStub stub(rig.channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  queue.Next(&tag, &ok);
  const grpc::Slice slice(std::string("\x3a\x00", 2));
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  queue.Next(&tag, &ok);
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  queue.Next(&tag, &ok);
  ASSERT_TRUE(ok);
  grpc::Slice answer;
  ASSERT_TRUE(response.DumpToSingleSlice(&answer).ok());
  const std::string bytes(answer.begin(), answer.end());
  EXPECT_THAT(bytes, HasSubstr("polysil.v1.Inference"));
  EXPECT_THAT(bytes, HasSubstr("polysil.v1.Admin"));
  EXPECT_THAT(bytes, HasSubstr("grpc.health.v1.Health"));
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
}

TEST(GrpcServices, TokenizeDetokenizeGetModel) {
  GrpcRig rig;
  v1::TokenizeRequest tokenize;
  tokenize.mutable_prompt()->set_text("h\xC3\xA9<|im_end|>");
  tokenize.mutable_prompt()->set_parse_special(true);
  v1::TokenizeResponse tokenized;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(rig.inference->Tokenize(&context, tokenize, &tokenized).ok());
  }
  EXPECT_THAT(tokenized.ids(), ElementsAre('h', 0xC3, 0xA9, kEnd));
  EXPECT_EQ(tokenized.tokens(1), "\xC3");
  v1::DetokenizeRequest detokenize;
  for (const int32_t id : {int{ByteTokenizer::kHello}, int{kEnd}}) detokenize.add_ids(id);
  detokenize.set_skip_special_tokens(true);
  v1::DetokenizeResponse text;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(rig.inference->Detokenize(&context, detokenize, &text).ok());
  }
  EXPECT_EQ(text.text(), "Hello");
  detokenize.add_ids(-1);
  {
    grpc::ClientContext context;
    EXPECT_EQ(rig.inference->Detokenize(&context, detokenize, &text).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  v1::Model model;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(rig.inference->GetModel(&context, {}, &model).ok());
  }
  EXPECT_EQ(model.name(), "test-model");
  EXPECT_THAT(model.aliases(), ElementsAre("alias"));
  EXPECT_EQ(model.context_tokens_max(), 256);
  EXPECT_EQ(model.vocab_size(), 300);
  EXPECT_TRUE(model.chat());
}

TEST(GrpcServices, Admin) {
  GrpcRig rig;
  ASSERT_TRUE(rig.Generate(Ask("hi")).status.ok());
  v1::Stats stats;
  v1::Readiness readiness;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(rig.admin->GetStats(&context, {}, &stats).ok());
  }
  EXPECT_EQ(stats.requests_stop(), 1u);
  EXPECT_EQ(stats.generation_tokens(), 7u);
  EXPECT_THAT(stats.step_duration().counts(), ElementsAre(1, 2, 3));
  rig.engine.SetReadiness({.ready = false, .reason = "stalled"});
  {
    grpc::ClientContext context;
    ASSERT_TRUE(rig.admin->GetReadiness(&context, {}, &readiness).ok());
  }
  EXPECT_FALSE(readiness.ready());
  EXPECT_EQ(readiness.reason(), "stalled");
  EXPECT_EQ(readiness.version(), "1.2.3");
}

}  // namespace
}  // namespace polysil

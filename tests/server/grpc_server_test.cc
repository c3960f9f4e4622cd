// The gRPC face over loopback, with a FakeEngine behind it.
#include "server/grpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>

#include "server/grpc_rig.h"

namespace polysil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GrpcServer, GenerateStreamsDeltasThenUsage) {
  FakeEngineOptions options{.script = Say("Hello."), .prompt_tokens_cached = 1};
  GrpcRig rig(options);
  v1::GenerateRequest request = Ask("hi");
  request.set_model("alias");
  request.set_return_prompt_token_ids(true);
  const GenerateResult result = rig.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.Text(), "Hello.");
  ASSERT_TRUE(result.usage.has_value());
  EXPECT_EQ(result.usage->prompt_tokens(), 2);
  EXPECT_EQ(result.usage->cached_tokens(), 1);
  EXPECT_EQ(result.usage->completion_tokens(), 7);
  EXPECT_THAT(result.deltas[0].prompt_token_ids(), ElementsAre('h', 'i'));
  std::vector<int32_t> ids;
  for (size_t i = 0; i < result.deltas.size(); ++i) {
    for (const v1::Token& token : result.deltas[i].tokens()) ids.push_back(token.id());
    EXPECT_EQ(result.deltas[i].finish_reason(), i + 1 == result.deltas.size()
                                                    ? v1::FINISH_REASON_STOP
                                                    : v1::FINISH_REASON_UNSPECIFIED);
  }
  EXPECT_THAT(ids, ElementsAre('H', 'e', 'l', 'l', 'o', '.', kEnd));
}

TEST(GrpcServer, FieldsReachTheEngine) {
  GrpcRig rig;
  v1::GenerateRequest request;
  request.mutable_prompt()->mutable_token_ids()->add_ids(5);
  request.set_temperature(0);  // SMP-03: zero is a value
  request.set_top_p(0.5F);
  request.set_top_k(-1);
  request.set_min_p(0.25F);
  request.set_repetition_penalty(1.5F);
  request.set_presence_penalty(-1);
  request.set_frequency_penalty(1);
  (*request.mutable_logit_bias())[7] = 1.5F;
  (*request.mutable_logit_bias())[5] = -2;
  request.set_seed(0);
  request.set_n(2);
  request.set_max_tokens(9);
  request.set_min_tokens(1);
  request.add_stop_token_ids(8);
  request.set_ignore_eos(true);
  ASSERT_TRUE(rig.Generate(request).status.ok());
  const Request submitted = rig.engine.submitted().at(0);
  EXPECT_THAT(submitted.prompt, ElementsAre(5));
  EXPECT_THAT(submitted.end_token_ids, ElementsAre(8));
  EXPECT_EQ(submitted.sequences, 2);
  EXPECT_EQ(submitted.sampling.temperature, 0.0F);
  EXPECT_EQ(submitted.sampling.top_p, 0.5F);
  EXPECT_EQ(submitted.sampling.top_k, 0);
  EXPECT_EQ(submitted.sampling.min_p, 0.25F);
  EXPECT_EQ(submitted.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(submitted.sampling.presence_penalty, -1.0F);
  EXPECT_EQ(submitted.sampling.frequency_penalty, 1.0F);
  EXPECT_EQ(submitted.sampling.seed, 0u);
  EXPECT_EQ(submitted.sampling.tokens_max, 9);
  EXPECT_EQ(submitted.sampling.tokens_min, 1);
  EXPECT_THAT(submitted.sampling.logit_bias, ElementsAre(std::pair(5, -2.0F), std::pair(7, 1.5F)));
}

TEST(GrpcServer, ChatEchoStopAndLogprobs) {
  GrpcRig rig({.script = Say("one two")});
  v1::GenerateRequest request;
  v1::Chat* chat = request.mutable_prompt()->mutable_chat();
  v1::ChatMessage* message = chat->add_messages();
  message->set_role("user");
  message->set_content("hi");
  request.add_stop(" two");
  GenerateResult result = rig.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.Text(), "one");
  EXPECT_EQ(result.deltas.back().stop_string(), " two");
  EXPECT_EQ(rig.engine.submitted()[0].prompt.size(), 21u);

  chat->set_tools_json(R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_TRUE(rig.Generate(request).status.ok());
  EXPECT_GT(rig.engine.submitted()[1].prompt.size(), 21u);

  request = Ask("h\xC3\xA9");
  request.set_echo(true);
  request.set_logprobs(1);
  request.set_max_tokens(1);
  result = rig.Generate(request);
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.Text(), "h\xC3\xA9o");
  const v1::Delta& first = result.deltas[0];
  ASSERT_EQ(first.prompt_tokens_size(), 3);
  EXPECT_FALSE(first.prompt_tokens(0).has_logprob());
  EXPECT_TRUE(first.prompt_tokens(1).has_logprob());
  EXPECT_EQ(first.prompt_tokens(1).token(), "\xC3");
  EXPECT_EQ(first.tokens(0).text_offset(), 2);
  EXPECT_EQ(first.tokens(0).top_size(), 1);
  EXPECT_EQ(first.finish_reason(), v1::FINISH_REASON_LENGTH);
}

// SMP-05, SMP-06, LEN-04, LEN-08: the same refusals as over HTTP, before the first message.
TEST(GrpcServer, RefusalsNameTheField) {
  GrpcRig rig;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  using R = v1::GenerateRequest&;
  const std::vector<std::pair<std::string, std::function<void(R)>>> cases = {
      {"temperature", [&](R r) { r.set_temperature(nan); }},
      {"temperature", [](R r) { r.set_temperature(2.5F); }},
      {"top_p", [](R r) { r.set_top_p(0); }},
      {"top_k", [](R r) { r.set_top_k(-2); }},
      {"min_p", [](R r) { r.set_min_p(1.5F); }},
      {"repetition_penalty", [](R r) { r.set_repetition_penalty(0); }},
      {"logit_bias", [](R r) { (*r.mutable_logit_bias())[300] = 1; }},
      {"logit_bias", [&](R r) { (*r.mutable_logit_bias())[3] = nan; }},
      {"n", [](R r) { r.set_n(0); }},
      {"n", [](R r) { r.set_n(1'000'000); }},
      {"priority", [](R r) { r.set_priority(1); }},
      {"priority", [](R r) { r.set_priority(-101); }},
      {"max_tokens", [](R r) { r.set_max_tokens(-1); }},
      {"max_tokens", [](R r) { r.set_max_tokens(0); }},
      {"min_tokens", [](R r) { r.set_min_tokens(-1); }},
      {"stop", [](R r) { r.add_stop(""); }},
      {"stop_token_ids", [](R r) { r.add_stop_token_ids(-1); }},
      {"logprobs", [](R r) { r.set_logprobs(21); }},
      {"prompt", [](R r) { r.clear_prompt(); }},
      {"prompt", [](R r) { r.mutable_prompt()->set_text(""); }},
      {"prompt", [](R r) { r.mutable_prompt()->set_text(std::string(256, 'a')); }},
      {"prompt", [](R r) { r.mutable_prompt()->mutable_token_ids()->add_ids(300); }},
      {"messages", [](R r) { r.mutable_prompt()->mutable_chat(); }},
      {"messages[0].role", [](R r) { r.mutable_prompt()->mutable_chat()->add_messages(); }},
      {"tools_json", [](R r) { r.mutable_prompt()->mutable_chat()->set_tools_json("{"); }},
      {"chat_template_kwargs_json",
       [](R r) { r.mutable_prompt()->mutable_chat()->set_chat_template_kwargs_json("[]"); }},
      {"tools_json",
       [](R r) { r.mutable_prompt()->mutable_chat()->set_tools_json(std::string(9999, '[')); }}};
  for (const auto& [field, change] : cases) {
    v1::GenerateRequest request = Ask("hi");
    change(request);
    const GenerateResult result = rig.Generate(request);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(result.status.error_message(), HasSubstr(field));
    EXPECT_EQ(result.messages, 0);
  }
  EXPECT_TRUE(rig.engine.submitted().empty());
  EXPECT_EQ(rig.service->Stats().requests_refused, cases.size());
  v1::GenerateRequest request = Ask("hi");
  request.set_model("gpt-4");
  EXPECT_EQ(rig.Generate(request).status.error_code(), grpc::StatusCode::NOT_FOUND);
}

// SCH-01, OPS-03, SSE-06.
TEST(GrpcServer, StatusCodesAreCanonical) {
  GrpcRig full({.running_max = 1, .queue_max = 0, .script = Say("x")});
  full.engine.AllowTokens(0);
  std::future<GenerateResult> first =
      std::async(std::launch::async, [&] { return full.Generate(Ask("hi")); });
  ASSERT_TRUE(full.engine.WaitUntilSubmitted(1));
  EXPECT_EQ(full.Generate(Ask("hi")).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  full.engine.AllowTokens(10);
  EXPECT_TRUE(first.get().status.ok());

  GrpcRig broken;
  broken.engine.SetReadiness({.ready = false, .reason = "no step for 5 s"});
  const GenerateResult refused = broken.Generate(Ask("hi"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("no step for 5 s"));

  FakeEngineOptions options{.script = Say("Hello"), .fail_after_tokens = 2};
  GrpcRig failing(options);
  const GenerateResult failed = failing.Generate(Ask("hi"));
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(failed.Text(), "He");
  EXPECT_FALSE(failed.usage.has_value());

  GrpcRig ending({.script = Say("Hello")});
  ending.engine.AllowTokens(2);
  std::future<GenerateResult> cut =
      std::async(std::launch::async, [&] { return ending.Generate(Ask("hi")); });
  ASSERT_TRUE(ending.engine.WaitUntilSubmitted(1));
  ending.engine.EndAll();
  EXPECT_EQ(cut.get().status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

// CAN-10.
TEST(GrpcServer, ClientCancelAndDeadline) {
  GrpcRig rig(EndlessEngine());
  rig.engine.AllowTokens(3);
  {
    grpc::ClientContext context;
    const auto reader = rig.inference->Generate(&context, Ask("hi"));
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  EXPECT_EQ(rig.Generate(Ask("hi"), context).status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_GT(rig.engine.submitted().at(1).deadline_ns, 0);
  EXPECT_TRUE(rig.engine.WaitUntilIdle());
  {
    // A client that dies takes its connection with it.
    const auto channel =
        grpc::CreateChannel(rig.server->address(), grpc::InsecureChannelCredentials());
    auto stub = v1::Inference::NewStub(channel);
    grpc::ClientContext dying;
    const auto reader = stub->Generate(&dying, Ask("hi"));
    v1::GenerateResponse response;
    ASSERT_TRUE(reader->Read(&response));
  }
  EXPECT_TRUE(rig.engine.WaitUntilIdle());
}

// A reader that takes nothing is cut off at the bound, and its neighbours do not notice.
TEST(GrpcServer, SlowReadersAreCutOff) {
  GrpcRig rig(EndlessEngine(), {.output_bytes_max = 10'000});
  grpc::ClientContext context;
  const auto slow = rig.inference->Generate(&context, Ask("hi"));
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
  v1::GenerateRequest request = Ask("hi");
  request.set_max_tokens(500);
  EXPECT_EQ(rig.Generate(request).Text(), std::string(500, 'a'));
  v1::GenerateResponse response;
  while (slow->Read(&response)) {
  }
  EXPECT_FALSE(slow->Finish().ok());
}

TEST(GrpcServer, ThirtyTwoStreamsAtOnce) {
  GrpcRig rig({.script = [](const Request& request, int32_t) {
    std::vector<TokenId> ids(100, request.prompt[0]);
    ids.push_back(kEnd);
    return ids;
  }});
  std::vector<std::future<GenerateResult>> results;
  for (int i = 0; i < 32; ++i) {
    results.push_back(std::async(std::launch::async, [&rig, i] {
      return rig.Generate(Ask(std::string(1, static_cast<char>('A' + i))));
    }));
  }
  for (int i = 0; i < 32; ++i) {
    const GenerateResult result = results[static_cast<size_t>(i)].get();
    EXPECT_TRUE(result.status.ok());
    EXPECT_EQ(result.Text(), std::string(100, static_cast<char>('A' + i)));
    EXPECT_EQ(result.usage->completion_tokens(), 101);
  }
}

// OPS-06.
TEST(GrpcServer, StopWaitsThenCuts) {
  GrpcRig rig({.script = Say("Hello")});
  rig.engine.AllowTokens(2);
  std::future<GenerateResult> stream =
      std::async(std::launch::async, [&] { return rig.Generate(Ask("hi")); });
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(1));
  std::future<void> stopped =
      std::async(std::launch::async, [&] { rig.server->Stop(std::chrono::seconds(60)); });
  rig.engine.AllowTokens(100);
  EXPECT_TRUE(stream.get().status.ok());
  stopped.get();
  grpc::ClientContext too_late;
  EXPECT_FALSE(rig.Generate(Ask("hi"), too_late).status.ok());

  GrpcRig other(EndlessEngine());
  other.engine.AllowTokens(2);
  stream = std::async(std::launch::async, [&] { return other.Generate(Ask("hi")); });
  ASSERT_TRUE(other.engine.WaitUntilSubmitted(1));
  other.server->Stop(std::chrono::milliseconds(20));
  EXPECT_FALSE(stream.get().status.ok());
  EXPECT_TRUE(other.engine.WaitUntilCancelled(1));
}

TEST(GrpcServer, AddressesThatCannotBeBound) {
  GrpcRig rig;
  const Status taken = GrpcServer::Create({.address = rig.server->address()}, rig.slot).status();
  EXPECT_EQ(taken.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(taken), HasSubstr(rig.server->address()));
  EXPECT_THAT(Message(taken), HasSubstr(std::strerror(EADDRINUSE)));
  // Of a documentation network: no machine has it.
  const Status foreign = GrpcServer::Create({.address = "192.0.2.1:0"}, rig.slot).status();
  EXPECT_EQ(foreign.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(foreign), HasSubstr(std::strerror(EADDRNOTAVAIL)));
  for (const char* nonsense : {"nonsense", "127.0.0.1", "127.0.0.1:99999", "::1:80"}) {
    EXPECT_EQ(GrpcServer::Create({.address = nonsense}, rig.slot).status().code(),
              StatusCode::kInvalidArgument)
        << nonsense;
  }
}

}  // namespace
}  // namespace polysil

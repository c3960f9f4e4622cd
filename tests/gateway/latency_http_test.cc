// Where the time of a call went, as HTTP shows it: in the usage where that is asked for, and in the
// metrics for every call, however it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void ExpectSums(const boost::json::value& segments) {
  int64_t sum = 0;
  for (const auto& [name, ns] : segments.as_object()) {
    EXPECT_GE(ns.as_int64(), 0) << name;
    if (name != "sum") sum += ns.as_int64();
  }
  EXPECT_EQ(segments.as_object().size(), kLatencySegments + 1);
  EXPECT_EQ(segments.at("sum").as_int64(), sum);
  EXPECT_GT(sum, 0);
}

TEST(LatencyHttp, IsInTheUsageWhereAskedFor) {
  GatewayRig rig;
  for (const bool chat : {false, true}) {
    const auto post = [&](const std::string& fields) {
      return chat ? rig.Post(kChat, Chat(fields)) : rig.Post(kCompletions, Completion(fields));
    };
    const HttpAnswer whole = post(R"("return_latency":true)");
    ASSERT_EQ(whole.status, 200) << whole.body;
    const boost::json::value latency = whole.Json().at("usage").at("latency_ns");
    ExpectSums(latency.at("total"));
    ExpectSums(latency.at("first_token"));
    EXPECT_GE(latency.at("total").at("sum").as_int64(),
              latency.at("first_token").at("sum").as_int64());
    EXPECT_EQ(latency.at("preemptions").as_int64(), 0);
    for (const std::string fields : {"", R"("return_latency":false)", R"("return_latency":null)"}) {
      EXPECT_THAT(post(fields).body, Not(HasSubstr("latency")));
    }
    const HttpAnswer stream =
        post(R"("stream":true,"stream_options":{"include_usage":true},"return_latency":true)");
    EXPECT_THAT(stream.body, HasSubstr(R"("latency_ns":{"first_token":{"receive":)"));
  }
}

TEST(LatencyHttp, ABadFieldIsRefused) {
  GatewayRig rig;
  for (const std::string value : {"1", R"("yes")", "[]", "{}"}) {
    const ErrorFacts error =
        ErrorOf(rig.Post(kCompletions, Completion(R"("return_latency":)" + value)));
    EXPECT_EQ(error.status, 400) << value;
    EXPECT_EQ(error.param, "return_latency");
  }
  // Where there is no usage there is no place for it.
  const ErrorFacts error = ErrorOf(rig.Post(kChat, Chat(R"("stream":true,"return_latency":true)")));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "return_latency");
  EXPECT_THAT(error.message, HasSubstr("include_usage"));
}

uint64_t CallsCounted(const TextService& service) {
  const auto counts = service.LatencyHistograms()[0].counts;
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

// OPS-02: finished, cancelled and refused ones count once each.
TEST(LatencyHttp, EveryCallCountsOnce) {
  GatewayRig rig({.script = Say("Hello")});
  EXPECT_EQ(rig.Post(kCompletions, "{").status, 400);
  EXPECT_EQ(rig.Post(kCompletions, Completion(R"("temperature":99)")).status, 400);
  rig.engine.AllowTokens(100);
  EXPECT_EQ(rig.Post(kCompletions, Completion()).status, 200);
  EXPECT_EQ(rig.Post(kChat, Chat(R"("stream":true)")).status, 200);
  while (CallsCounted(*rig.service) < 4) std::this_thread::yield();
  {
    HttpClient leaves(rig.gateway->port());
    leaves.Post(kCompletions, Completion(R"("max_tokens":200,"ignore_eos":true,"stream":true)"));
    leaves.ReceiveHead();
  }
  while (CallsCounted(*rig.service) < 5) std::this_thread::yield();
  EXPECT_EQ(rig.Get("/health").status, 200);  // which is no call
  EXPECT_EQ(CallsCounted(*rig.service), 5U);
  EXPECT_THAT(rig.Get("/metrics").body,
              HasSubstr("polysil_request_segment_seconds_count{segment=\"receive\"} 5\n"));
}

}  // namespace
}  // namespace polysil

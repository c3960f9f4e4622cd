#include "bench/offline_bench.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/json.hpp>
#include <string>
#include <vector>

#include "bench/offline_report.h"
#include "fakes/fake_engine.h"

namespace polysil {
namespace {

constexpr RequestLimits kLimits = {
    .vocab_size = 300, .context_tokens_max = 600, .kv_tokens_max = 1000, .sequences_max = 4};

// A millisecond passes with each look at it, so the engine gives a token each millisecond.
class LookedAtClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_ += 1'000'000; }

 private:
  mutable std::atomic<int64_t> now_ns_ = 0;
};

std::vector<std::string> NamesOf(const std::vector<OfflineRow>& rows) {
  std::vector<std::string> names;
  for (const OfflineRow& row : rows) names.push_back(row.Name());
  return names;
}

TEST(OfflineRows, AreThoseAskedFor) {
  const auto rows = PlanRows({.prompts = {16, 32},
                              .generates = {8},
                              .depths = {0, 100},
                              .streams = {1, 4},
                              .stream_prompt = 20},
                             kLimits);
  ASSERT_TRUE(rows.ok()) << Message(rows.status());
  EXPECT_EQ(NamesOf(*rows),
            (std::vector<std::string>{"pp16", "pp32", "pp16 @ 100", "pp32 @ 100", "tg8",
                                      "tg8 @ 100", "tg8 x 1 @ 20", "tg8 x 4 @ 20"}));
}

TEST(OfflineRows, AZeroAsksForNone) {
  const auto rows =
      PlanRows({.prompts = {0}, .generates = {8}, .depths = {0}, .streams = {0}}, kLimits);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(NamesOf(*rows), std::vector<std::string>{"tg8"});
  EXPECT_FALSE(PlanRows({.prompts = {0}, .generates = {0}}, kLimits).ok());
}

TEST(OfflineRows, WhatCannotRunIsRefusedWithItsReason) {
  const auto message = [](const OfflineOptions& options) {
    return Message(PlanRows(options, kLimits).status());
  };
  const OfflineOptions prompt = {.prompts = {500}, .depths = {101}, .streams = {0}};
  EXPECT_EQ(message(prompt), "pp500 @ 101 needs 602 tokens of context, the model has 600");
  const OfflineOptions streams = {
      .prompts = {0}, .depths = {0}, .streams = {5}, .stream_prompt = 64};
  EXPECT_EQ(message(streams), "tg128 x 5 @ 64 needs --set scheduler.sequences_max=5, it is 4");
  const OfflineOptions pool = {.prompts = {0}, .depths = {0}, .streams = {4}, .stream_prompt = 300};
  EXPECT_NE(message(pool).find("kv.blocks"), std::string::npos);
  EXPECT_NE(message({.prompts = {-1}}).find("--prompt is -1"), std::string::npos);
  EXPECT_NE(message({.prompts = {0}, .generates = {1}}).find("two tokens"), std::string::npos);
}

struct Rig {
  LookedAtClock clock;
  FakeEngine engine;
  ModelSpec spec{.q_heads = 1, .kv_heads = 1, .head_size = 8, .layers = {{}}};
  ModelWeights weights{.output = {.dtype = DType::kQ8_0, .rows = 300, .cols = 32},
                       .layers = std::vector<LayerWeights>(1)};
  ModelWork work{spec, weights, false, KvLayout{.head_size = 8}};
  OfflineBench bench{engine, work, clock};

  explicit Rig(FakeEngineOptions options = {}) : engine(Scripted(std::move(options))) {}

  static FakeEngineOptions Scripted(FakeEngineOptions options) {
    options.limits = kLimits;
    options.script = [](const Request&, int32_t) { return std::vector<TokenId>{7}; };
    return options;
  }
  StatusOr<std::vector<OfflineResult>> Run(const OfflineRow& row, int32_t repetitions = 3) {
    return bench.Run(
        {row}, repetitions, [](const std::string&) {}, [] { return OkStatus(); });
  }
};

TEST(OfflineBench, TokensAreDividedByTheTimeTheyTook) {
  Rig rig;
  const auto prompt = rig.Run({.tokens = 64});
  ASSERT_TRUE(prompt.ok()) << Message(prompt.status());
  EXPECT_EQ((*prompt)[0].rates, (std::vector<double>{64'000, 64'000, 64'000}));
  const auto one = rig.Run({.tokens = 16, .streams = 1});
  ASSERT_TRUE(one.ok()) << Message(one.status());
  EXPECT_EQ((*one)[0].rates, (std::vector<double>{1000, 1000, 1000}));
  // All streams together: one of their tokens each millisecond.
  const auto many = rig.Run({.tokens = 100, .depth = 8, .streams = 3, .own_prompt = true});
  ASSERT_TRUE(many.ok()) << Message(many.status());
  for (const double rate : (*many)[0].rates) EXPECT_NEAR(rate, 1000, 1e-6);
}

TEST(OfflineBench, WhatTheCacheHadIsNoWorkDone) {
  Rig rig({.prompt_tokens_cached = 96});
  const auto prompt = rig.Run({.tokens = 64, .depth = 100});
  ASSERT_TRUE(prompt.ok()) << Message(prompt.status());
  EXPECT_EQ((*prompt)[0].Median(), 68'000);
}

TEST(OfflineBench, ADepthThatIsNotInTheCacheIsAnError) {
  Rig rig;
  const auto prompt = rig.Run({.tokens = 64, .depth = 400});
  EXPECT_EQ(prompt.status().code(), StatusCode::kFailedPrecondition);
}

TEST(OfflineBench, AFailureOfTheEngineIsTold) {
  Rig rig({.fail_after_tokens = 2});
  EXPECT_FALSE(rig.Run({.tokens = 16, .streams = 1}).ok());
}

OfflineReport SomeReport() {
  OfflineReport report = {.model = "a<b&c.gguf", .weight_types = "Q8_0", .device = "CPU"};
  report.bounds.threads = 2;
  report.bounds.read_all.Add(20e9);
  report.bounds.int8_operations.Add(400e9);
  report.results.push_back({.row = {.tokens = 512},
                            .rates = {900, 1100, 1000, 950},
                            .work = {.bytes = 1e8, .int8_operations = 1e11},
                            .work_tokens = 512});
  report.results.push_back({.row = {.tokens = 128, .streams = 1},
                            .rates = {50},
                            .work = {.bytes = 1e8, .int8_operations = 2.7e8},
                            .work_tokens = 1});
  return report;
}

TEST(OfflineReport, JsonHasMediansAndFractionsOfTheBound) {
  const boost::json::value report = boost::json::parse(JsonOf(SomeReport()));
  const boost::json::object& prompt = report.at("rows").at(0).as_object();
  EXPECT_EQ(prompt.at("name"), "pp512");
  EXPECT_EQ(prompt.at("tok_s").at("median"), 975.0);
  EXPECT_EQ(prompt.at("tok_s").at("min"), 900.0);
  EXPECT_EQ(prompt.at("tok_s").at("max"), 1100.0);
  EXPECT_EQ(prompt.at("bound_by"), "arithmetic");
  EXPECT_NEAR(prompt.at("bound_tok_s").as_double(), 2048, 1e-6);
  const boost::json::object& decode = report.at("rows").at(1).as_object();
  EXPECT_EQ(decode.at("bound_by"), "memory");
  EXPECT_NEAR(decode.at("fraction").as_double(), 0.25, 1e-9);
  EXPECT_TRUE(report.at("bounds").at("float_gflop_s").is_null());
}

TEST(OfflineReport, ThePictureEscapesNamesAndLabelsEachRow) {
  const std::string svg = RooflineSvgOf(SomeReport());
  EXPECT_NE(svg.find("a&lt;b&amp;c.gguf"), std::string::npos);
  EXPECT_NE(svg.find(">pp512<"), std::string::npos);
  EXPECT_NE(svg.find(">tg128<"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace polysil

// The simulation as a whole: equal seeds give equal runs, a replay shows the ticks before the one
// asked for, a report says what was counted, and the parts it is made of.
#include "sim/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "sim/plans.h"
#include "sim/random_workload.h"
#include "sim/report.h"
#include "sim/run.h"
#include "sim/timeline_svg.h"

namespace polysil {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<std::string> TicksOf(uint64_t seed) {
  std::vector<std::string> lines;
  Simulation simulation(PlanOfSeed(seed), false);
  const SimObservers observers{
      .after_tick = [&](const std::string& line) { lines.push_back(line); }};
  while (simulation.Advance(observers)) {
  }
  return lines;
}

TEST(Simulation, EqualSeedsGiveEqualTicks) {
  for (uint64_t seed = 1; seed <= 50; ++seed) ASSERT_EQ(TicksOf(seed), TicksOf(seed)) << seed;
  EXPECT_NE(TicksOf(1), TicksOf(2));
}

// The first seed whose run has so many ticks.
uint64_t SeedOfTicks(size_t ticks) {
  for (uint64_t seed = 1;; ++seed) {
    if (TicksOf(seed).size() >= ticks) return seed;
  }
}

TEST(Simulation, AReplayEndsAtItsTickAndShowsTheTicksBeforeIt) {
  const uint64_t seed = SeedOfTicks(60);
  const std::vector<std::string> all = TicksOf(seed);
  std::vector<std::string> shown;
  Simulation simulation(PlanOfSeed(seed), false);
  const Status status = RunToEnd(
      simulation, {.seed = seed, .until_tick = 40, .print_tick = [&](const std::string& line) {
                     shown.push_back(line);
                   }});
  ASSERT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(simulation.ticks(), 40);
  EXPECT_EQ(shown, std::vector<std::string>(all.begin() + 20, all.begin() + 40));
}

// The engine is told of more sequences in a step than the device takes.
SimPlan PlanThatFails() {
  SimPlan plan;
  plan.device = {.limits = {.tokens_max = 64, .sequences_max = 2}, .vocab_size = 50};
  plan.engine = {.sequences_max = 4,
                 .limits = {.vocab_size = 50,
                            .context_tokens_max = 80,
                            .kv_tokens_max = 64 * 16,
                            .sequences_max = 4},
                 .step_limits = {.tokens_max = 64, .sequences_max = 4},
                 .kv = {.blocks = 64}};
  plan.workload = std::make_unique<RandomWorkload>(RandomWorkloadOptions{.gap_mean_ns = 1e5}, 3);
  return plan;
}

TEST(Simulation, AFailureNamesCheckSeedTickAndCommandAndComesAgain) {
  Simulation simulation(PlanThatFails(), false);
  const Status status = RunToEnd(simulation, {.seed = 3});
  ASSERT_FALSE(status.ok());
  const int64_t tick = simulation.ticks();
  EXPECT_THAT(Message(status), StartsWith("limits kept: step "));
  EXPECT_THAT(Message(status),
              HasSubstr(fmt::format("(seed 3, tick {}; to see it: polysil sim --seed 3 "
                                    "--until-tick {})",
                                    tick, tick)));
  Simulation again(PlanThatFails(), false);
  EXPECT_EQ(Message(RunToEnd(again, {.seed = 3, .until_tick = tick})), Message(status));
  Simulation before(PlanThatFails(), false);
  EXPECT_TRUE(RunToEnd(before, {.seed = 3, .until_tick = tick - 1}).ok());
}

TEST(Simulation, ABrokenInvariantSaysWhichSeedAndTick) {
  const auto run = [] {
    Simulation simulation(PlanOfSeed(3), false);
    static_cast<void>(RunToEnd(simulation, {.seed = 3, .until_tick = 5, .print_tick = [](auto&) {
                                              CHECK(false, "on purpose");
                                            }}));
  };
  EXPECT_DEATH(run(), "on purpose\nseed 3, tick 1; to see it: polysil sim --seed 3 --until-tick 1");
}

TEST(Simulation, TheReportCountsWhatHappened) {
  const uint64_t seed = SeedOfTicks(100);
  Simulation simulation(PlanOfSeed(seed), true);
  ASSERT_TRUE(RunToEnd(simulation, {.seed = seed}).ok());
  const boost::json::value report = boost::json::parse(JsonOf(simulation));
  const boost::json::object& requests = report.at("requests").as_object();
  int64_t ended = 0;
  for (const char* outcome : {"length", "stop", "cancelled", "deadline", "error", "refused"}) {
    ended += requests.at(outcome).to_number<int64_t>();
  }
  EXPECT_EQ(requests.at("total").to_number<int64_t>(), ended);
  EXPECT_EQ(ended, simulation.clients().calls_total());
  EXPECT_EQ(report.at("output_tokens").to_number<int64_t>(),
            static_cast<int64_t>(simulation.stats().generation_tokens));
  int64_t gaps = 0;
  for (const boost::json::value& bin : report.at("bins").as_array()) {
    gaps += bin.at("inter_token").at("count").to_number<int64_t>();
  }
  EXPECT_EQ(gaps, simulation.clients().inter_token().total());
  EXPECT_THAT(TableOf(simulation), HasSubstr(fmt::format("requests                {}: ", ended)));
  const std::string svg = SvgOf(simulation);
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("time to first token"));
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(Timeline, WidensItsBinsAndLosesNothing) {
  Timeline timeline;
  EngineStats stats;
  stats.requests_running = 3;
  for (int64_t ms = 0; ms < 1000; ++ms) {
    timeline.ObserveTick(ms * 1'000'000, stats);
    timeline.ObserveGap(ms * 1'000'000, 5'000'000);
  }
  EXPECT_EQ(timeline.bin_ns(), 8'000'000);
  EXPECT_EQ(timeline.bins().size(), 125U);
  for (const Timeline::Bin& bin : timeline.bins()) {
    EXPECT_EQ(bin.ticks, 8);
    EXPECT_DOUBLE_EQ(bin.MeanOf(bin.running), 3.0);
    EXPECT_EQ(bin.inter_token.total(), 8);
  }
}

TEST(LatencyHistogram, PercentilesAreRightToThreePercent) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.PercentileNs(0.5), 0);
  for (int64_t ms = 1; ms <= 1000; ++ms) histogram.Observe(ms * 1'000'000);
  for (const double share : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = share * 1e9;
    EXPECT_NEAR(static_cast<double>(histogram.PercentileNs(share)), exact * 1.016, exact * 0.016);
  }
  histogram.Observe(-1);
  histogram.Observe(int64_t{1} << 62);
  EXPECT_GE(histogram.PercentileNs(1.0), int64_t{1} << 62);
}

TEST(Random, HasTheMomentsOfItsDistributions) {
  Random random(5);
  constexpr int kDraws = 200'000;
  for (const double shape : {0.3, 1.0, 4.0}) {
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < kDraws; ++i) {
      const double x = random.Gamma(shape, 2.0);
      ASSERT_GE(x, 0.0);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, shape * 2.0, shape * 2.0 * 0.03);
    EXPECT_NEAR(squares / kDraws - mean * mean, shape * 4.0, shape * 4.0 * 0.06);
  }
  double sum = 0.0;
  int low = 0;
  for (int i = 0; i < kDraws; ++i) {
    sum += random.Exponential(3.0);
    const int32_t between = random.Between(-1, 2);
    ASSERT_TRUE(between >= -1 && between <= 2);
    low += between == -1 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kDraws, 3.0, 0.05);
  EXPECT_NEAR(static_cast<double>(low) / kDraws, 0.25, 0.01);
}

TEST(RandomWorkload, SessionsReturnWithALongerPrompt) {
  RandomWorkload workload({.calls = 1, .prompt_tokens_max = 200, .returning = 1.0}, 4);
  const SimCall first = workload.Take();
  ASSERT_GE(first.session, 0);
  ASSERT_EQ(workload.next_ns(), kNever);
  workload.OnEnd(first.session, *first.request, std::vector<TokenId>{1, 2, 3}, 1000);
  ASSERT_GE(workload.next_ns(), 1000);
  ASSERT_NE(workload.next_ns(), kNever);
  const SimCall second = workload.Take();
  std::vector<TokenId> prefix = first.request->prompt;
  prefix.insert(prefix.end(), {1, 2, 3});
  ASSERT_GT(second.request->prompt.size(), prefix.size());
  EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), second.request->prompt.begin()));
}

}  // namespace
}  // namespace polysil

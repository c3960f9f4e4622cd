// Where the time of a call went: the segments sum to its clock, wherever it ends.
#include "session/call_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "session/manual_rig.h"

namespace polysil {
namespace {

constexpr int64_t kBegun = 1'000;

class HandClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_{kBegun};
};

struct LedgerRig {
  HandClock clock;
  std::shared_ptr<LatencyTotals> totals = std::make_shared<LatencyTotals>();
  CallLedger ledger{clock, totals, kBegun, "test"};

  int64_t age_ns() const { return clock.NowNs() - kBegun; }
  void Submit() {
    clock.Advance(10);
    ledger.OnReceived();
    clock.Advance(20);
    ledger.OnTokenized();
  }
};

constexpr SequenceLatency kUntilFirst = {.queue_ns = 5, .prefill_ns = 50, .wait_ns = 2};
constexpr SequenceLatency kUntilLast = {.queue_ns = 5,
                                        .prefill_ns = 50,
                                        .decode_ns = 300,
                                        .wait_ns = 40,
                                        .preempted_ns = 7,
                                        .prefill_steps = 2,
                                        .decode_steps = 3,
                                        .preemptions = 1};

TEST(CallLedger, SegmentsSumToTheClock) {
  LedgerRig rig;
  rig.Submit();
  rig.clock.Advance(57 + 3);  // the engine's part, and the text's
  rig.ledger.OnFirstToken(kUntilFirst);
  rig.clock.Advance(4);
  rig.ledger.OnFirstTokenSent();
  const int64_t first_token_ns = rig.age_ns();
  rig.ledger.OnFirstTokenSent();  // once
  rig.clock.Advance(402 - 64 + 8);
  rig.ledger.OnEnd(OkStatus(), {}, kUntilLast);
  rig.clock.Advance(9);
  rig.ledger.Close();
  const int64_t total_ns = rig.age_ns();
  rig.clock.Advance(1000);
  rig.ledger.Close();  // once

  const CallLatency latency = rig.ledger.latency();
  using testing::ElementsAre;
  // receive, tokenize, queue, prefill, decode, wait, preempted, detokenize, flush
  EXPECT_THAT(latency.first_token.ns, ElementsAre(10, 20, 5, 50, 0, 2, 0, 3, 4));
  EXPECT_THAT(latency.total.ns, ElementsAre(10, 20, 5, 50, 300, 40, 7, 8, 9));
  EXPECT_EQ(latency.first_token.total_ns(), first_token_ns);
  EXPECT_EQ(latency.total.total_ns(), total_ns);
  EXPECT_EQ(latency.prefill_steps, 2);
  EXPECT_EQ(latency.decode_steps, 3);
  EXPECT_EQ(latency.preemptions, 1);
  const LatencyTotals::Histograms totals = rig.totals->Read();
  for (size_t i = 0; i < kLatencySegments; ++i) {
    EXPECT_NEAR(totals[i].sum, static_cast<double>(latency.total.ns[i]) * 1e-9, 1e-15);
    EXPECT_EQ(std::accumulate(totals[i].counts.begin(), totals[i].counts.end(), uint64_t{0}), 1U);
  }
}

// As the answer shows it: it does not know yet when it will be out.
TEST(CallLedger, SaysAtAnyTimeWhereItHasGoneSoFar) {
  LedgerRig rig;
  const auto expect_all = [&](LatencySegment last) {
    EXPECT_EQ(rig.ledger.latency().total.total_ns(), rig.age_ns());
    rig.clock.Advance(100);
    EXPECT_EQ(rig.ledger.latency().total.total_ns(), rig.age_ns());
    EXPECT_GE(rig.ledger.latency().total[last], 100);
  };
  expect_all(LatencySegment::kReceive);
  rig.ledger.OnReceived();
  expect_all(LatencySegment::kTokenize);
  rig.ledger.OnTokenized();
  expect_all(LatencySegment::kWait);
  rig.clock.Advance(1000);
  rig.ledger.OnEnd(OkStatus(), {}, kUntilLast);
  expect_all(LatencySegment::kFlush);
}

TEST(CallLedger, WhatEndsEarlyIsWhole) {
  for (const int stations : {0, 1, 2}) {
    LedgerRig rig;
    rig.clock.Advance(10);
    if (stations > 0) rig.ledger.OnReceived();
    rig.clock.Advance(20);
    if (stations > 1) rig.ledger.OnTokenized();
    rig.clock.Advance(30);
    rig.ledger.OnRefused(InvalidArgument("wrong"));
    rig.clock.Advance(40);
    rig.ledger.Close();
    const LatencySegments total = rig.ledger.latency().total;
    EXPECT_EQ(total.total_ns(), 100);
    EXPECT_EQ(total[LatencySegment::kFlush], 40);
    EXPECT_EQ(total[LatencySegment::kReceive], stations == 0 ? 60 : 10);
    EXPECT_EQ(total[LatencySegment::kTokenize], stations == 0 ? 0 : stations == 1 ? 50 : 20);
    EXPECT_EQ(rig.ledger.latency().first_token.total_ns(), 0);
  }
}

// A stop string ends the call before the engine knows of it: its account up to there counts.
TEST(CallLedger, StationsAfterTheEndChangeNothing) {
  LedgerRig rig;
  rig.Submit();
  rig.clock.Advance(1000);
  rig.ledger.OnEnd(Cancelled("gone"), {}, kUntilFirst);
  rig.ledger.OnEnd(OkStatus(), {}, kUntilLast);
  rig.ledger.OnFirstToken(kUntilLast);
  rig.ledger.OnRefused(InvalidArgument("wrong"));
  rig.ledger.Close();
  const CallLatency latency = rig.ledger.latency();
  EXPECT_EQ(latency.total[LatencySegment::kDecode], 0);
  EXPECT_EQ(latency.total.total_ns(), 1030);
  EXPECT_EQ(latency.first_token.total_ns(), 0);
}

TEST(CallLedger, ClosesWithItsLastOwner) {
  auto totals = std::make_shared<LatencyTotals>();
  HandClock clock;
  { const CallLedger dropped(clock, totals, kBegun, "dropped"); }
  EXPECT_EQ(totals->Read()[0].counts[0], 1U);
}

uint64_t Counted(const TextService& service) {
  const auto counts = service.LatencyHistograms()[0].counts;
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

// The service and its streams tell the ledger what they know.
TEST(CallLedger, IsKeptByTheService) {
  ManualRig rig;
  TextCall call = Ask("ab");
  call.ledger = rig.service->OpenLedger(5'000'000, "");
  const std::shared_ptr<CallLedger> ledger = call.ledger;
  ASSERT_TRUE(rig.Start(std::move(call)).ok());
  SequenceOutput output;
  output.tokens = Tokens(Bytes("x"));
  output.latency = {.queue_ns = 7, .prefill_ns = 8};
  rig.engine.Deliver(rig.id(), output);
  output.latency.decode_ns = 9;
  output.latency.decode_steps = 1;
  output.finish = FinishReason::kLength;
  rig.engine.Deliver(rig.id(), output);
  ASSERT_TRUE(rig.sink->WaitEnd().status.ok());
  const CallLatency latency = ledger->latency();
  EXPECT_GE(latency.total[LatencySegment::kReceive], 5'000'000);
  EXPECT_EQ(latency.first_token[LatencySegment::kPrefill], 8);
  EXPECT_EQ(latency.first_token[LatencySegment::kDecode], 0);
  EXPECT_EQ(latency.total[LatencySegment::kQueue], 7);
  EXPECT_EQ(latency.total[LatencySegment::kDecode], 9);
  EXPECT_EQ(latency.decode_steps, 1);
  EXPECT_EQ(Counted(*rig.service), 0U);
  ledger->Close();
  EXPECT_EQ(Counted(*rig.service), 1U);
}

TEST(CallLedger, CountsWhatTheServiceRefuses) {
  ManualRig rig;
  TextCall call = Ask("");  // no token
  call.ledger = rig.service->OpenLedger(0, "refused");
  EXPECT_FALSE(rig.Start(std::move(call)).ok());
  EXPECT_EQ(Counted(*rig.service), 1U);
}

}  // namespace
}  // namespace polysil

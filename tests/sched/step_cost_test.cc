#include "sched/step_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace polysil {
namespace {

struct Truth {
  double step = 2e6;
  double row = 3e5;
  double position = 40.0;
  double sequence = 1e4;

  double operator()(const StepWork& work) const {
    return step + row * static_cast<double>(work.rows) +
           position * static_cast<double>(work.positions) +
           sequence * static_cast<double>(work.sequences);
  }
};

StepWork Decodes(int64_t sequences, int64_t context) {
  StepWork work;
  for (int64_t i = 0; i < sequences; ++i) work = work.With(context, 1);
  return work;
}

class StepCost : public testing::Test {
 protected:
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  int64_t Whole(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  StepWork AnyWork() {
    StepWork work = Decodes(Whole(1, 32), Whole(1, 4000));
    return Whole(0, 1) == 0 ? work : work.With(Whole(0, 8000), Whole(1, 512));
  }
  void Observe(const StepWork& work, double ns) { model_.Observe(work, static_cast<int64_t>(ns)); }
  double Error(const StepWork& work, double truth) const {
    return std::abs(model_.PredictNs(work) / truth - 1.0);
  }

  std::mt19937_64 random_{7};
  StepCostModel model_;
};

TEST(StepWork, CountsWhatRowsLookAt) {
  // Rows at positions 10, 11 and 12 look at 11, 12 and 13; one at position 0 looks at itself.
  const StepWork work = StepWork{}.With(10, 3).With(0, 1);
  EXPECT_EQ(work.rows, 4);
  EXPECT_EQ(work.positions, 11 + 12 + 13 + 1);
  EXPECT_EQ(work.sequences, 2);
}

TEST_F(StepCost, KnowsNothingAtFirst) {
  EXPECT_FALSE(model_.knows());
  EXPECT_EQ(model_.PredictNs(Decodes(4, 100)), 0.0);
  model_.Observe(Decodes(4, 100), 0);
  EXPECT_FALSE(model_.knows()) << "a duration of 0 says nothing";
}

TEST_F(StepCost, FindsTheTruth) {
  const Truth truth;
  for (int i = 0; i < 200; ++i) {
    const StepWork work = AnyWork();
    Observe(work, truth(work));
  }
  for (int i = 0; i < 200; ++i) {
    const StepWork work = AnyWork();
    EXPECT_LT(Error(work, truth(work)), 0.01) << work.rows << " " << work.positions;
  }
  EXPECT_LT(model_.spread(), 0.01);
}

TEST_F(StepCost, OneObservationIsEnoughForItsLike) {
  const StepWork work = Decodes(8, 500);
  Observe(work, 5e6);
  EXPECT_LT(Error(work, 5e6), 0.001);
}

TEST_F(StepCost, SlowStepsDoNotSpoilIt) {
  const Truth truth;
  for (int i = 0; i < 600; ++i) {
    const StepWork work = AnyWork();
    // Noise, and every tenth step ten to fifty times as slow.
    const double slow = i % 10 == 0 ? Between(10, 50) : Between(0.95, 1.05);
    Observe(work, truth(work) * slow);
  }
  for (int i = 0; i < 100; ++i) {
    const StepWork work = AnyWork();
    EXPECT_LT(Error(work, truth(work)), 0.15);
  }
  EXPECT_GT(model_.spread(), 0.02);
  EXPECT_LE(model_.spread(), 1.0);
}

TEST_F(StepCost, OneStepThatWasTooQuickMovesItLittle) {
  const Truth truth;
  for (int i = 0; i < 200; ++i) {
    const StepWork work = AnyWork();
    Observe(work, truth(work));
  }
  const StepWork work = Decodes(16, 1000);
  Observe(work, 1.0);
  EXPECT_LT(Error(work, truth(work)), 0.2);
}

TEST_F(StepCost, DecodesDoNotWashAwayWhatPrefillCosts) {
  const Truth truth;
  for (int i = 0; i < 50; ++i) {
    const StepWork work = AnyWork();
    Observe(work, truth(work));
  }
  for (int i = 0; i < 100'000; ++i) {
    const StepWork work = Decodes(16, 500 + i % 1000);
    Observe(work, truth(work));
  }
  const StepWork prefill = Decodes(16, 1000).With(4000, 256);
  EXPECT_LT(Error(prefill, truth(prefill)), 0.05);
}

TEST_F(StepCost, FollowsADeviceThatChanges) {
  Truth truth;
  for (int i = 0; i < 300; ++i) {
    const StepWork work = AnyWork();
    Observe(work, truth(work));
  }
  truth = {.step = 1e6, .row = 9e5, .position = 10.0, .sequence = 0.0};
  for (int i = 0; i < 2000; ++i) {
    const StepWork work = AnyWork();
    Observe(work, truth(work));
  }
  for (int i = 0; i < 100; ++i) {
    const StepWork work = AnyWork();
    EXPECT_LT(Error(work, truth(work)), 0.05);
  }
}

// Whatever it was told: more work never costs less, nothing is negative or not a number.
TEST_F(StepCost, IsMonotoneWhateverItSaw) {
  for (int run = 0; run < 50; ++run) {
    model_ = {};
    const int64_t observations = Whole(1, 60);
    for (int64_t i = 0; i < observations; ++i) {
      Observe(AnyWork(), std::pow(10.0, Between(0, 12)));
    }
    const StepWork work = AnyWork();
    const double ns = model_.PredictNs(work);
    EXPECT_GE(ns, 0.0);
    EXPECT_LE(ns, model_.PredictNs(work.With(0, 1)));
    EXPECT_LE(ns, model_.PredictNs({work.rows + 5, work.positions, work.sequences}));
    EXPECT_LE(ns, model_.PredictNs({work.rows, work.positions + 999, work.sequences}));
  }
}

// A device whose steps only have a price of their own, or only one for rows.
TEST_F(StepCost, TermsThatCostNothingComeOutAsNothing) {
  for (const Truth truth : {Truth{2e6, 0, 0, 0}, Truth{0, 1e5, 0, 0}, Truth{0, 0, 100, 0}}) {
    model_ = {};
    for (int i = 0; i < 200; ++i) {
      const StepWork work = AnyWork();
      Observe(work, truth(work));
    }
    for (int i = 0; i < 50; ++i) {
      const StepWork work = AnyWork();
      EXPECT_LT(Error(work, truth(work)), 0.02);
    }
  }
}

}  // namespace
}  // namespace polysil

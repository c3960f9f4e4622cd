#include "bench/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace polysil {
namespace {

constexpr int kGaps = 200'000;

std::vector<double> GapsOf(double rate, double burstiness, uint64_t seed, int gaps = kGaps) {
  Arrivals arrivals(rate, burstiness, seed);
  EXPECT_EQ(arrivals.next_ns(), 0);
  std::vector<double> seconds;
  int64_t last_ns = 0;
  for (int i = 0; i < gaps; ++i) {
    arrivals.Advance();
    seconds.push_back(static_cast<double>(arrivals.next_ns() - last_ns) * 1e-9);
    last_ns = arrivals.next_ns();
  }
  return seconds;
}

// Gamma of shape k and mean m has variance m^2 / k. The bounds are five standard errors: of the
// mean m / sqrt(k n), of the variance at most that of its fourth moment, (3 + 6 / k) m^4 / k^2 / n.
TEST(Arrivals, GapsHaveTheMeanAndVarianceOfTheirShape) {
  for (const double shape : {0.25, 1.0, 4.0}) {
    for (const double rate : {0.5, 40.0}) {
      const std::vector<double> gaps = GapsOf(rate, shape, 3);
      double mean = 0;
      for (const double gap : gaps) mean += gap * rate / kGaps;
      double variance = 0;
      for (const double gap : gaps) variance += std::pow(gap * rate - mean, 2) / kGaps;
      EXPECT_NEAR(mean, 1.0, 5 / std::sqrt(shape * kGaps)) << shape << " " << rate;
      EXPECT_NEAR(variance, 1.0 / shape, 5 * std::sqrt((3 + 6 / shape) / kGaps) / shape)
          << shape << " " << rate;
    }
  }
}

// Of a Poisson process, exp(-1) of the gaps are longer than the mean; of a steady one about half.
TEST(Arrivals, APoissonProcessHasExponentialGaps) {
  const std::vector<double> gaps = GapsOf(10, 1, 4);
  int longer = 0;
  for (const double gap : gaps) longer += gap > 0.1 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(longer) / kGaps, std::exp(-1.0), 0.006);
}

TEST(Arrivals, AreAFunctionOfTheSeed) {
  EXPECT_EQ(GapsOf(5, 0.5, 7, 100), GapsOf(5, 0.5, 7, 100));
  EXPECT_NE(GapsOf(5, 0.5, 7, 100), GapsOf(5, 0.5, 8, 100));
}

}  // namespace
}  // namespace polysil

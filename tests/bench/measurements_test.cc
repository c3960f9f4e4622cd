#include "bench/measurements.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

// Expected values are numpy's: percentile([15, 20, 35, 40, 50], p), std([...]).
TEST(Measurements, AreSummarisedAsNumpyDoes) {
  Measurements values;
  for (const float value : {40.0F, 15.0F, 50.0F, 20.0F, 35.0F}) values.Add(value);
  EXPECT_EQ(values.count(), 5U);
  EXPECT_DOUBLE_EQ(values.Mean(), 32.0);
  EXPECT_NEAR(values.Deviation(), 12.884098726725126, 1e-12);
  EXPECT_DOUBLE_EQ(values.Percentile(0), 15.0);
  EXPECT_DOUBLE_EQ(values.Percentile(40), 29.0);
  EXPECT_DOUBLE_EQ(values.Percentile(50), 35.0);
  EXPECT_NEAR(values.Percentile(99.9), 49.96, 1e-12);
  EXPECT_DOUBLE_EQ(values.Max(), 50.0);
  values.Add(1.0F);  // after it was sorted
  EXPECT_DOUBLE_EQ(values.Percentile(0), 1.0);
  EXPECT_DOUBLE_EQ(values.Percentile(50), 27.5);
}

TEST(Measurements, OneIsAllOfItsPercentilesAndNoneIsZero) {
  Measurements one;
  one.Add(7.0F);
  for (const double percent : {0.0, 50.0, 99.9, 100.0}) {
    EXPECT_EQ(one.Percentile(percent), 7.0);
  }
  EXPECT_EQ(one.Deviation(), 0.0);
  Measurements none;
  EXPECT_EQ(none.Mean(), 0.0);
  EXPECT_EQ(none.Deviation(), 0.0);
  EXPECT_EQ(none.Percentile(99), 0.0);
}

}  // namespace
}  // namespace polysil

#include "device/cpu/cpu_bounds.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

void ExpectInOrder(const RateSamples& rate) {
  EXPECT_GT(rate.worst(), 0.0);
  EXPECT_GE(rate.median(), rate.worst());
  EXPECT_GE(rate.best(), rate.median());
}

TEST(CpuBounds, EverythingIsMeasuredThatTheMachineHas) {
  for (const kernels::Isa isa : {kernels::Isa::kPortable, kernels::Isa::kAvx2}) {
    if (!kernels::Runs(isa)) continue;
    const auto bounds = MeasureCpuBounds(
        {.threads = 3, .isa = isa, .passes = 4, .read_bytes = 1 << 20, .loops = 1000});
    ASSERT_TRUE(bounds.ok()) << Message(bounds.status());
    EXPECT_EQ(bounds->threads, 3);
    ExpectInOrder(bounds->read_one);
    ExpectInOrder(bounds->read_all);
    if (isa == kernels::Isa::kPortable) {
      EXPECT_TRUE(bounds->int8_operations.empty());
      EXPECT_TRUE(bounds->float_operations.empty());
    } else {
      ExpectInOrder(bounds->int8_operations);
      ExpectInOrder(bounds->float_operations);
    }
  }
}

TEST(CpuBounds, MeasurementsAreJoined) {
  CpuBounds bounds;
  EXPECT_EQ(bounds.read_all.best(), 0.0);
  for (const double rate : {3.0, 9.0, 5.0}) bounds.read_all.Add(rate);
  CpuBounds more;
  for (const double rate : {1.0, 7.0}) more.read_all.Add(rate);
  bounds.Add(more);
  EXPECT_EQ(bounds.read_all.best(), 9.0);
  EXPECT_EQ(bounds.read_all.median(), 5.0);
  EXPECT_EQ(bounds.read_all.worst(), 1.0);
  EXPECT_TRUE(bounds.int8_operations.empty());
}

TEST(CpuBounds, NoThreadsMeasureNothing) {
  EXPECT_EQ(MeasureCpuBounds({.threads = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureCpuBounds({.threads = 1, .passes = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace polysil

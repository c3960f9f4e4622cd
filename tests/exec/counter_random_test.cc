#include "exec/counter_random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace polysil {
namespace {

// Known answers published with the Random123 library.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformDraw, DependsOnEachOfItsArguments) {
  const double draw = UniformDraw(7, 1, 100);
  EXPECT_EQ(UniformDraw(7, 1, 100), draw);
  EXPECT_NE(UniformDraw(8, 1, 100), draw);
  EXPECT_NE(UniformDraw(7 + (uint64_t{1} << 32), 1, 100), draw);
  EXPECT_NE(UniformDraw(7, 2, 100), draw);
  EXPECT_NE(UniformDraw(7, 1, 101), draw);
}

// Over any one argument the draws must look uniform: 64 cells, chi-squared with 63 degrees of
// freedom exceeds 120 less than once in 10^5.
TEST(UniformDraw, IsUniformAlongEveryArgument) {
  for (int argument = 0; argument < 3; ++argument) {
    std::array<int, 64> cells = {};
    constexpr int kDraws = 64000;
    for (int i = 0; i < kDraws; ++i) {
      const double draw =
          UniformDraw(argument == 0 ? i : 3, argument == 1 ? i : 0, argument == 2 ? i : 5);
      ASSERT_GE(draw, 0.0);
      ASSERT_LT(draw, 1.0);
      ++cells[static_cast<int>(draw * 64)];
    }
    double chi_squared = 0.0;
    for (const int count : cells) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi_squared, 120.0) << "argument " << argument;
  }
}

}  // namespace
}  // namespace polysil

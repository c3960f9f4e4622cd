#include "base/log.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

TEST(Log, LevelsFilter) {
  SetLogLevel(LogLevel::kWarning);
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  EXPECT_TRUE(LogEnabled(LogLevel::kError));
  SetLogLevel(LogLevel::kInfo);
  EXPECT_TRUE(LogEnabled(LogLevel::kInfo));
}

TEST(Log, ParsesNamesAndNamesTheBadOne) {
  EXPECT_EQ(*ParseLogLevel("warning"), LogLevel::kWarning);
  const Status bad = ParseLogLevel("loud").status();
  EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(bad).find("'loud'"), std::string::npos);
}

}  // namespace
}  // namespace polysil

#include "base/host_port.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

TEST(HostPort, Addresses) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:80")->host, "127.0.0.1");
  EXPECT_EQ(ParseHostPort("[::1]:8080")->host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:8080")->port, 8080);
  EXPECT_EQ(ParseHostPort(":0")->host, "");
  for (const char* bad : {"", "localhost", "a:", "a:x", "a:65536", "a:-1", "::1:80", "a:80 "}) {
    EXPECT_FALSE(ParseHostPort(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace polysil

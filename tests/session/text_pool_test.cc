// TextPool: tenants take turns, and none of them takes all places.
#include "session/text_pool.h"

#include <gtest/gtest.h>

#include <future>

namespace polysil {
namespace {

// A pool of one thread that is held until it is let go; what ran is noted in order.
class HeldPool final {
 public:
  explicit HeldPool(bool tenants_leave_room)
      : pool_({.threads = 1, .queue_max = 8, .tenants_leave_room = tenants_leave_room}) {
    std::promise<void> begun;
    EXPECT_TRUE(pool_.TryPost("", [this, &begun] {
      begun.set_value();
      go_.get_future().wait();
    }));
    begun.get_future().wait();
  }

  bool TryPost(const std::string& tenant) {
    return pool_.TryPost(tenant, [this, tenant] { ran_ += tenant; });
  }
  std::string Finish() {
    go_.set_value();
    EXPECT_TRUE(pool_.WaitIdle(60'000'000'000));
    return ran_;
  }

 private:
  std::promise<void> go_;
  std::string ran_;
  TextPool pool_;
};

TEST(TextPool, TenantsTakeTurns) {
  HeldPool pool(true);
  for (const char* tenant : {"a", "a", "a", "b", "c", "b"}) EXPECT_TRUE(pool.TryPost(tenant));
  EXPECT_EQ(pool.Finish(), "abcaba");
}

TEST(TextPool, ATenantLeavesRoomForOthers) {
  HeldPool pool(true);
  for (int32_t i = 0; i < 6; ++i) EXPECT_TRUE(pool.TryPost("a"));
  EXPECT_FALSE(pool.TryPost("a"));
  EXPECT_TRUE(pool.TryPost("b"));
  EXPECT_TRUE(pool.TryPost("c"));
  EXPECT_FALSE(pool.TryPost("d"));
  EXPECT_EQ(pool.Finish(), "abcaaaaa");
}

TEST(TextPool, WithoutTenantsOneMayHaveAll) {
  HeldPool pool(false);
  for (int32_t i = 0; i < 8; ++i) EXPECT_TRUE(pool.TryPost("a"));
  EXPECT_FALSE(pool.TryPost("a"));
  EXPECT_EQ(pool.Finish(), "aaaaaaaa");
}

}  // namespace
}  // namespace polysil

#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace polysil {
namespace {

TEST(BoundedQueue, KeepsOrderAndRefusesAtTheBound) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_TRUE(queue.TryPush(4));
  EXPECT_EQ(queue.TryPop(), 2);
  EXPECT_EQ(queue.TryPop(), 4);
  EXPECT_EQ(queue.TryPop(), std::nullopt);
}

TEST(BoundedQueue, ARefusedItemStaysWithTheCaller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(item)));
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
}

TEST(BoundedQueue, CloseDrainsThenEnds) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.TryPush(7));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(8));
  EXPECT_EQ(queue.Pop(), 7);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueue, PopWaitsForAnotherThread) {
  BoundedQueue<int> queue(1);
  std::thread producer([&queue] {
    for (int i = 0; i < 1000;) i += queue.TryPush(int{i}) ? 1 : 0;
    queue.Close();
  });
  int expected = 0;
  while (std::optional<int> item = queue.Pop()) EXPECT_EQ(*item, expected++);
  EXPECT_EQ(expected, 1000);
  producer.join();
}

}  // namespace
}  // namespace polysil

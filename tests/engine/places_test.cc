// Places: bounded, given back once each, and none left without room.
#include "engine/places.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

StatusCode Take(Places& places, const std::string& tenant, int32_t sequences) {
  return places.TryTake(tenant, sequences).code();
}

TEST(Places, AreBounded) {
  Places places(4, false);
  EXPECT_EQ(Take(places, "", 3), StatusCode::kOk);
  EXPECT_EQ(Take(places, "", 2), StatusCode::kResourceExhausted);
  EXPECT_EQ(Take(places, "", 1), StatusCode::kOk);
  EXPECT_EQ(places.taken(), 4);
  places.Give("", 4);
  EXPECT_EQ(places.taken(), 0);
}

TEST(Places, ATenantLeavesRoomForOthers) {
  Places places(8, true);
  for (int32_t i = 0; i < 6; ++i) EXPECT_EQ(Take(places, "a", 1), StatusCode::kOk);
  EXPECT_EQ(Take(places, "a", 1), StatusCode::kResourceExhausted);
  EXPECT_EQ(Take(places, "b", 1), StatusCode::kOk);
  EXPECT_EQ(Take(places, "c", 1), StatusCode::kOk);
  EXPECT_EQ(Take(places, "d", 1), StatusCode::kResourceExhausted);
  places.Give("a", 6);
  EXPECT_EQ(Take(places, "a", 7), StatusCode::kResourceExhausted);
  EXPECT_EQ(Take(places, "a", 6), StatusCode::kOk);
}

class CountingSink final : public OutputSink {
 public:
  void OnOutput(SequenceOutput) override { ++outputs; }
  int32_t outputs = 0;
};

TEST(Places, EachFinalOutputGivesOneBack) {
  Places places(4, true);
  ASSERT_TRUE(places.TryTake("a", 2).ok());
  const auto sink = std::make_shared<CountingSink>();
  const std::shared_ptr<OutputSink> placed = places.Placed(sink, "a");
  placed->OnOutput({});
  EXPECT_EQ(places.taken(), 2);
  placed->OnOutput({.finish = FinishReason::kLength});
  EXPECT_EQ(places.taken(), 1);
  placed->OnOutput({.finish = FinishReason::kError});
  EXPECT_EQ(places.taken(), 0);
  EXPECT_EQ(sink->outputs, 3);
}

}  // namespace
}  // namespace polysil

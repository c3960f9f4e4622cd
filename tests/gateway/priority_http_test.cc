// How urgent an HTTP call is, as the engine is told it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using testing::HasSubstr;

HttpAnswer PostWith(GatewayRig& rig, bool chat, const std::string& field) {
  return chat ? rig.Post(kChat, Chat(field)) : rig.Post(kCompletions, Completion(field));
}

TEST(PriorityHttp, ACallMayOnlyStandBackByDefault) {
  GatewayRig rig;
  for (const bool chat : {false, true}) {
    for (const int priority : {-100, -7, 0}) {
      const std::string field = R"("priority":)" + std::to_string(priority);
      ASSERT_EQ(PostWith(rig, chat, field).status, 200);
      EXPECT_EQ(rig.engine.submitted().back().priority, priority);
    }
    for (const std::string field : {"", R"("priority":null)"}) {
      ASSERT_EQ(PostWith(rig, chat, field).status, 200);
      EXPECT_EQ(rig.engine.submitted().back().priority, 0);
    }
    const ErrorFacts refused = ErrorOf(PostWith(rig, chat, R"("priority":1)"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.param, "priority");
    EXPECT_EQ(refused.message, "priority is 1; it must be between -100 and 0");
  }
}

TEST(PriorityHttp, TheServerMayAllowMore) {
  GatewayRig rig({.script = Say("x")}, {}, {.limits = {.priority_max = 50}});
  ASSERT_EQ(PostWith(rig, /*chat=*/true, R"("priority":50)").status, 200);
  EXPECT_EQ(rig.engine.submitted().back().priority, 50);
  EXPECT_THAT(ErrorOf(PostWith(rig, /*chat=*/true, R"("priority":51)")).message,
              HasSubstr("between -100 and 50"));
}

}  // namespace
}  // namespace polysil

// How urgent a gRPC call is, as the engine is told it.
#include <gtest/gtest.h>

#include "server/grpc_rig.h"

namespace polysil {
namespace {

TEST(PriorityGrpc, ACallMayOnlyStandBackByDefault) {
  GrpcRig rig;
  v1::GenerateRequest request = Ask("hi");
  ASSERT_TRUE(rig.Generate(request).status.ok());
  EXPECT_EQ(rig.engine.submitted().back().priority, 0);
  request.set_priority(-100);
  ASSERT_TRUE(rig.Generate(request).status.ok());
  EXPECT_EQ(rig.engine.submitted().back().priority, -100);
  request.set_priority(1);
  const grpc::Status refused = rig.Generate(request).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.error_message(), "priority is 1; it must be between -100 and 0");

  GrpcRig raised({.script = Say("x")}, {}, {.limits = {.priority_max = 50}});
  request.set_priority(50);
  ASSERT_TRUE(raised.Generate(request).status.ok());
  EXPECT_EQ(raised.engine.submitted().back().priority, 50);
}

}  // namespace
}  // namespace polysil

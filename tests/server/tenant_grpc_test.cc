// Whose share a gRPC call takes, as the engine is told it.
#include <gtest/gtest.h>

#include <map>

#include "server/grpc_rig.h"

namespace polysil {
namespace {

grpc::StatusCode Call(GrpcRig& rig, const std::multimap<std::string, std::string>& metadata) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  return rig.Generate(Ask("hi"), context).status.error_code();
}

std::string TenantGiven(GrpcRig& rig, const std::multimap<std::string, std::string>& metadata) {
  EXPECT_EQ(Call(rig, metadata), grpc::StatusCode::OK);
  const Request request = rig.engine.submitted().back();
  EXPECT_EQ(request.cache_salt, request.tenant);
  return request.tenant;
}

TEST(TenantGrpc, NobodyIsToldApartByDefault) {
  GrpcRig rig;
  EXPECT_EQ(TenantGiven(rig, {{"x-tenant-id", "a"}, {"authorization", "Bearer b"}}), "");
}

TEST(TenantGrpc, MetadataNamesIt) {
  GrpcRig named({.script = Say("x")}, {}, {.tenants = TenantSource::kHeader});
  EXPECT_EQ(TenantGiven(named, {{"x-tenant-id", "a"}, {"authorization", "Bearer b"}}), "id:a");
  EXPECT_EQ(TenantGiven(named, {}), "");
  EXPECT_EQ(Call(named, {{"x-tenant-id", "a b"}}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Call(named, {{"x-tenant-id", "a"}, {"x-tenant-id", "b"}}),
            grpc::StatusCode::INVALID_ARGUMENT);

  GrpcRig keyed({.script = Say("x")}, {}, {.tenants = TenantSource::kApiKey});
  const std::string one = TenantGiven(keyed, {{"authorization", "Bearer one"}});
  EXPECT_EQ(one.size(), 4U + 64U);
  EXPECT_NE(TenantGiven(keyed, {{"authorization", "Bearer two"}}), one);
  EXPECT_EQ(TenantGiven(keyed, {{"x-tenant-id", "a"}}), "");
}

}  // namespace
}  // namespace polysil

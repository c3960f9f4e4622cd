// Whose share an HTTP call takes, as the engine is told it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using testing::HasSubstr;

std::string TenantGiven(GatewayRig& rig, std::string_view headers) {
  EXPECT_EQ(rig.Post("/v1/completions", R"({"prompt":"hi"})", headers).status, 200);
  const Request request = rig.engine.submitted().back();
  // Nobody finds out by the prefix cache what another tenant has sent.
  EXPECT_EQ(request.cache_salt, request.tenant);
  return request.tenant;
}

TEST(TenantHttp, NobodyIsToldApartByDefault) {
  GatewayRig rig;
  EXPECT_EQ(TenantGiven(rig, "X-Tenant-Id: a\r\nAuthorization: Bearer b\r\n"), "");
}

TEST(TenantHttp, TheHeaderNamesIt) {
  GatewayRig rig({.script = Say("x")}, {}, {.tenants = TenantSource::kHeader});
  EXPECT_EQ(TenantGiven(rig, "X-Tenant-Id: a\r\nAuthorization: Bearer b\r\n"), "id:a");
  EXPECT_EQ(TenantGiven(rig, "x-tenant-id: a\r\n"), "id:a");
  EXPECT_EQ(TenantGiven(rig, ""), "");
}

TEST(TenantHttp, AWrongNameIsRefused) {
  GatewayRig rig({.script = Say("x")}, {}, {.tenants = TenantSource::kHeader});
  for (const char* headers :
       {"X-Tenant-Id: a b\r\n", "X-Tenant-Id:\r\n", "X-Tenant-Id: a\r\nX-Tenant-Id: b\r\n"}) {
    const HttpAnswer answer = rig.Post("/v1/chat/completions", Chat(), headers);
    EXPECT_EQ(answer.status, 400) << headers;
    EXPECT_THAT(answer.body, HasSubstr("X-Tenant-Id"));
  }
  EXPECT_TRUE(rig.engine.submitted().empty());
  EXPECT_EQ(rig.service->Stats().requests_refused, 3U);
}

TEST(TenantHttp, TheKeyNamesIt) {
  GatewayRig rig({.script = Say("x")}, {}, {.tenants = TenantSource::kApiKey});
  const std::string one = TenantGiven(rig, "Authorization: Bearer one\r\n");
  EXPECT_EQ(one.size(), 4U + 64U);
  EXPECT_EQ(one.find("one"), std::string::npos);
  EXPECT_EQ(TenantGiven(rig, "Authorization: Bearer one\r\nX-Tenant-Id: a\r\n"), one);
  EXPECT_NE(TenantGiven(rig, "Authorization: Bearer two\r\n"), one);
  EXPECT_EQ(TenantGiven(rig, "X-Tenant-Id: a\r\n"), "");
  // Two keys: neither counts.
  EXPECT_EQ(TenantGiven(rig, "Authorization: Bearer one\r\nAuthorization: Bearer two\r\n"), "");
}

}  // namespace
}  // namespace polysil

#include "session/tenant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/text_call.h"

namespace polysil {
namespace {

std::string Tenant(TenantSource source, const Caller& caller) {
  const StatusOr<std::string> tenant = TenantOf(source, caller);
  EXPECT_TRUE(tenant.ok()) << Message(tenant.status());
  return tenant.ok() ? *tenant : "refused";
}

// What anybody can write must not tell anybody apart, unless the operator says so.
TEST(Tenant, WithoutASourceAllAreOne) {
  EXPECT_EQ(Tenant(TenantSource::kNone, {"Bearer a", "b"}), "");
  EXPECT_EQ(Tenant(TenantSource::kNone, {"", std::string(1000, 'x')}), "");
}

TEST(Tenant, AKeyIsKeptAsItsDigest) {
  // printf %s abc | sha256sum
  EXPECT_EQ(Tenant(TenantSource::kApiKey, {"Bearer abc", std::nullopt}),
            "key:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Tenant(TenantSource::kApiKey, {"bEARER   abc  ", std::nullopt}),
            Tenant(TenantSource::kApiKey, {"Bearer abc", std::nullopt}));
  EXPECT_NE(Tenant(TenantSource::kApiKey, {"Bearer abd", std::nullopt}),
            Tenant(TenantSource::kApiKey, {"Bearer abc", std::nullopt}));
}

TEST(Tenant, WithoutAKeyAllAreOne) {
  for (const char* authorization : {"", "Bearer", "Bearer ", "Bearer    ", "Basic YWJj", "abc"}) {
    EXPECT_EQ(Tenant(TenantSource::kApiKey, {authorization, "name"}), "") << authorization;
  }
}

TEST(Tenant, ANameIsCheckedAndKept) {
  EXPECT_EQ(Tenant(TenantSource::kHeader, {"Bearer abc", "team-7"}), "id:team-7");
  EXPECT_EQ(Tenant(TenantSource::kHeader, {"Bearer abc", std::nullopt}), "");
  for (const std::string& id :
       {std::string(), std::string("a b"), std::string("a\nb"), std::string(129, 'a'),
        std::string("\xc3\xa9"), std::string("a\0b", 3)}) {
    const StatusOr<std::string> tenant = TenantOf(TenantSource::kHeader, {"", id});
    ASSERT_FALSE(tenant.ok());
    EXPECT_EQ(tenant.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(tenant.status()), "X-Tenant-Id");
  }
  EXPECT_EQ(Tenant(TenantSource::kHeader, {"", std::string(128, 'a')}).size(), 131U);
}

// A name cannot be mistaken for the digest of a key, nor for no name.
TEST(Tenant, SourcesDoNotMix) {
  const std::string key = Tenant(TenantSource::kApiKey, {"Bearer abc", std::nullopt});
  EXPECT_NE(Tenant(TenantSource::kHeader, {"", key}), key);
}

}  // namespace
}  // namespace polysil

// OPS-05: the HTTP face before there is a text service, that is while the model loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/gateway_rig.h"
#include "gateway/openai_bodies.h"

namespace polysil {
namespace {

using testing::HasSubstr;

// A face whose slot is empty; `rig` has the service to fill it with.
struct LoadingHttp {
  LoadingHttp() { gateway->Start(); }
  HttpAnswer Get(std::string_view path) {
    HttpClient client(gateway->port());
    client.Get(path);
    return client.Receive();
  }
  HttpAnswer Post(std::string_view path, std::string_view body) {
    HttpClient client(gateway->port());
    client.Post(path, body);
    return client.Receive();
  }

  GatewayRig rig;
  TextSlot slot;
  std::unique_ptr<HttpGateway> gateway =
      HttpGateway::Create({.address = "127.0.0.1:0", .version = "1.2.3"}, slot).value();
};

TEST(LoadingHttp, ItLivesAndIsNotReady) {
  LoadingHttp loading;
  EXPECT_EQ(loading.Get("/health").status, 200);
  EXPECT_EQ(Str(loading.Get("/version").Json().at("version")), "1.2.3");
  std::vector<HttpAnswer> refused = {loading.Get("/ready"), loading.Get("/v1/models"),
                                     loading.Get("/v1/models/test-model"), loading.Get("/metrics")};
  for (const char* path : {kChat, kCompletions, "/tokenize", "/detokenize"}) {
    refused.push_back(loading.Post(path, R"({"stream":true})"));
  }
  for (const HttpAnswer& answer : refused) {
    EXPECT_THAT(answer.Header("retry-after"), testing::MatchesRegex("[1-9][0-9]*"));
    const ErrorFacts error = ErrorOf(answer);
    EXPECT_EQ(error.status, 503);
    EXPECT_EQ(error.type, "service_unavailable_error");
    EXPECT_THAT(error.message, HasSubstr("the model is being loaded"));
  }
  // What is wrong with a request as such is still said.
  EXPECT_EQ(loading.Get("/nowhere").status, 404);
  EXPECT_EQ(loading.Get(kChat).status, 405);
}

TEST(LoadingHttp, OneConnectionSeesItGetReady) {
  LoadingHttp loading;
  HttpClient client(loading.gateway->port());
  client.Get("/ready");
  EXPECT_EQ(client.Receive().status, 503);
  client.Post(kChat, Chat());
  EXPECT_EQ(client.Receive().status, 503);
  loading.slot.Fill(*loading.rig.service);
  client.Get("/ready");
  EXPECT_EQ(client.Receive().status, 200);
  client.Post(kChat, Chat());
  EXPECT_EQ(client.Receive().status, 200);
  client.Get("/v1/models");
  EXPECT_EQ(client.Receive().status, 200);
}

}  // namespace
}  // namespace polysil

// The HTTP face as a server of sockets: framing, pipelining, limits, disconnects, slow readers and
// writers, many streams, orderly stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "gateway/socket_bodies.h"

namespace polysil {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Sends bytes on a new connection; the first answer's status. 0: closed without one.
int StatusFor(GatewayRig& rig, std::string_view bytes) {
  HttpClient client(rig.gateway->port());
  client.Send(bytes);
  return client.Receive().status;
}

TEST(HttpSockets, RoutesAndMethods) {
  GatewayRig rig;
  EXPECT_EQ(rig.Get("/").status, 404);
  EXPECT_EQ(rig.Get("/v1/nothing").status, 404);
  EXPECT_EQ(rig.Get("/health?x=1").status, 200);
  const HttpAnswer wrong = rig.Get("/v1/chat/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.Header("allow"), "POST");
  EXPECT_EQ(rig.Post("/health", "{}").Header("allow"), "GET, HEAD");
  for (const char* method : {"DELETE", "PUT", "OPTIONS", "PATCH", "TRACE", "FOO"}) {
    EXPECT_EQ(StatusFor(rig, std::string(method) + " /health HTTP/1.1\r\nHost: a\r\n\r\n"), 405)
        << method;
    EXPECT_EQ(StatusFor(rig, std::string(method) + " /nothing HTTP/1.1\r\nHost: a\r\n\r\n"), 404)
        << method;
  }
  EXPECT_EQ(StatusFor(rig, "GET http://localhost/health HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(StatusFor(rig, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusFor(rig, "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

TEST(HttpSockets, OneHost) {
  GatewayRig rig;
  EXPECT_EQ(StatusFor(rig, "GET /health HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusFor(rig, "GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusFor(rig, "GET /health HTTP/1.1\r\nHost:\r\n\r\n"), 200);
  EXPECT_EQ(StatusFor(rig, "GET /health HTTP/1.0\r\n\r\n"), 200);
}

TEST(HttpSockets, HeadHasTheLengthAndNoBody) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n");
  const HttpAnswer head = client.Receive(/*head=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Header("content-length"), "15");
  EXPECT_EQ(client.Receive().body, R"({"status":"ok"})");
}

TEST(HttpSockets, Http10) {
  GatewayRig rig;
  HttpClient once(rig.gateway->port());
  once.Send("GET /health HTTP/1.0\r\n\r\n");
  const HttpAnswer answer = once.Receive();
  EXPECT_EQ(answer.Header("connection"), "close");
  EXPECT_EQ(answer.body, R"({"status":"ok"})");
  EXPECT_TRUE(once.AtEnd());

  HttpClient kept(rig.gateway->port());
  for (int i = 0; i < 2; ++i) {
    kept.Send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(kept.Receive().Header("connection"), "keep-alive");
  }
  // A stream has no length and HTTP/1.0 no chunks: the end of the connection ends it.
  HttpClient stream(rig.gateway->port());
  stream.Send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " +
              std::to_string(sizeof(kChatStreamBody) - 1) + "\r\n\r\n" + kChatStreamBody);
  const HttpAnswer events = stream.Receive();
  EXPECT_EQ(events.Header("transfer-encoding"), "");
  const EventStream parsed(events.body);
  EXPECT_TRUE(parsed.well_formed && parsed.done);
}

// OPS-09: one packet, many requests, answered in order, errors among them.
TEST(HttpSockets, Pipelining) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send("DELETE /health HTTP/1.1\r\nHost: a\r\n\r\n" +
              PostText("/v1/chat/completions", kChatStreamBody) +
              "\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n" +
              PostText("/v1/chat/completions", "{") + PostText("/tokenize", R"({"prompt":"a"})") +
              "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n" + PostText("/nothing", ""));
  EXPECT_EQ(client.Receive().status, 405);
  const HttpAnswer stream = client.Receive();
  EXPECT_TRUE(EventStream(stream.body).done);
  EXPECT_EQ(client.Receive().body, R"({"version":"1.2.3"})");
  EXPECT_EQ(client.Receive().status, 400);
  EXPECT_THAT(client.Receive().body, HasSubstr("[97]"));
  EXPECT_EQ(client.Receive().status, 404);
  EXPECT_EQ(client.Receive().status, 404);
  client.Get("/health");
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(HttpSockets, OneByteAtATime) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  for (const char c : PostText("/v1/chat/completions", kChatBody))
    client.Send(std::string_view(&c, 1));
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(HttpSockets, ChunkedBodies) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;x=y\r\n{\"pro\r\nb\r\nmpt\": \"ab\"}\r\n0\r\nTrailer: x\r\n\r\n");
  EXPECT_THAT(client.Receive().body, HasSubstr("[97,98]"));
  client.Get("/health");
  EXPECT_EQ(client.Receive().status, 200);
}

// A body that a refusal leaves unread must not be taken for the next request.
TEST(HttpSockets, UnreadBodiesEndTheConnection) {
  GatewayRig rig;
  for (const char* head : {"POST /nothing", "PUT /v1/completions"}) {
    HttpClient client(rig.gateway->port());
    client.Send(std::string(head) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n" +
                "GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /health HT");
    const HttpAnswer answer = client.Receive();
    EXPECT_GE(answer.status, 404);
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST(HttpSockets, ExpectContinue) {
  GatewayRig rig;
  const std::string head = "Content-Length: " + std::to_string(sizeof(kChatBody) - 1) +
                           "\r\nExpect: 100-continue\r\n\r\n";
  HttpClient client(rig.gateway->port());
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n" + head);
  EXPECT_EQ(client.ReceiveHead().status, 100);
  client.Send(kChatBody);
  EXPECT_EQ(client.Receive().status, 200);
  // Both at once, too.
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n" + head + kChatBody);
  EXPECT_EQ(client.ReceiveHead().status, 100);
  EXPECT_EQ(client.Receive().status, 200);
  // Refused without asking for the body.
  EXPECT_EQ(StatusFor(rig, "POST /nothing HTTP/1.1\r\nHost: a\r\n" + head), 404);
  EXPECT_EQ(StatusFor(rig, "GET /v1/completions HTTP/1.1\r\nHost: a\r\n" + head), 405);
  EXPECT_EQ(StatusFor(rig,
                      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n"
                      "Expect: 100-continue\r\n\r\n"),
            413);
  EXPECT_EQ(StatusFor(rig,
                      "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
                      "Expect: something\r\n\r\n"),
            417);
}

// OPS-08, OPS-10: framing that is hostile or broken is refused, and nothing is allocated for it.
TEST(HttpSockets, BrokenFraming) {
  GatewayRig rig({.script = Say("x")}, {.limits = {.body_bytes_max = 100'000}});
  const std::string post = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {post + "Content-Length: abc\r\n\r\n", 400},
      {post + "Content-Length: -268435455700\r\n\r\n", 400},
      {post + "Content-Length: 1000000000000\r\n\r\n", 413},
      {post + "Content-Length: 100001\r\n\r\n", 413},
      {post + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 400},
      {post + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415},
      {post + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n", 413},
      {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n5;" + std::string(10'000, 'x'), 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(10'000, 'x'), 400},
      {"GET /" + std::string(1'000'000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
      {"GET /health HTTP/1.1\r\nHost: a\r\nX: " + std::string(1'000'000, 'a') + "\r\n\r\n", 431},
      {"GET /health HTTP/3.7\r\n\r\n", 400},
      {"GET /health\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x05\x01\x01\xfc\x03\x03 hello over TLS\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nHost: a\r\nA\x01: b\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 28), 400}};
  for (const auto& [bytes, status] : cases) {
    HttpClient client(rig.gateway->port());
    client.Send(bytes);
    const HttpAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 120);
    EXPECT_THAT(answer.body, HasSubstr(R"("type":"invalid_request_error")")) << answer.body;
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
  std::string many = "GET /health HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 200; ++i) many += "A: b\r\n";
  EXPECT_EQ(StatusFor(rig, many + "\r\n"), 431);
  // A chunked body over the limit, piece by piece.
  HttpClient client(rig.gateway->port());
  client.Send(post + "Transfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30; ++i) client.Send("1000\r\n" + std::string(4096, ' ') + "\r\n");
  EXPECT_EQ(client.Receive().status, 413);
  EXPECT_EQ(rig.Get("/health").status, 200);
}

// OPS-09: a body shorter than announced is never run.
TEST(HttpSockets, ShortBodyIsNotRun) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n" +
              std::string(kChatBody));
  client.ShutdownSend();
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(rig.engine.submitted().empty());
}

// CAN-07: an id that is safe comes back, any other is replaced.
TEST(HttpSockets, RequestIds) {
  GatewayRig rig;
  const auto id_for = [&](const std::string& id) {
    return rig.Post("/v1/chat/completions", kChatStreamBody, "X-Request-Id: " + id + "\r\n")
        .Header("x-request-id");
  };
  EXPECT_EQ(id_for("abc-123"), "abc-123");
  std::vector<std::string> replaced;
  for (const std::string& id : {std::string(), std::string("a\"b"), std::string("a b"),
                                std::string("caf\xC3\xA9"), std::string(129, 'a')}) {
    replaced.push_back(id_for(id));
    EXPECT_TRUE(replaced.back().starts_with("req-")) << replaced.back();
  }
  EXPECT_NE(replaced[0], replaced[1]);
  EXPECT_EQ(rig.Get("/health").Header("x-request-id").substr(0, 4), "req-");
  EXPECT_EQ(StatusFor(rig, "GET /nothing HTTP/1.1\r\nHost: a\r\nX-Request-Id: x\r\n\r\n"), 404);
}

// CAN-06: the same id twice at once.
TEST(HttpSockets, EqualRequestIdsDoNotMeet) {
  GatewayRig rig({.script = [](const Request& request, int32_t) {
    return std::vector<TokenId>{request.prompt.back(), ByteTokenizer::kTurnEnd};
  }});
  rig.engine.AllowTokens(0);
  HttpClient one(rig.gateway->port());
  HttpClient two(rig.gateway->port());
  one.Post("/v1/completions", R"({"prompt":"1"})", "X-Request-Id: same\r\n");
  two.Post("/v1/completions", R"({"prompt":"2"})", "X-Request-Id: same\r\n");
  ASSERT_TRUE(rig.engine.WaitUntilSubmitted(2));
  rig.engine.AllowTokens(10);
  EXPECT_EQ(one.Receive().Json().at("choices").at(0).at("text").as_string(), "1");
  EXPECT_EQ(two.Receive().Json().at("choices").at(0).at("text").as_string(), "2");
}

}  // namespace
}  // namespace polysil

// The HTTP face as a server of sockets: framing, pipelining, limits, disconnects, slow readers and
// writers, many streams, orderly stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "gateway/gateway_rig.h"

namespace polysil {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kChatStream[] = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
constexpr char kChat[] = R"({"messages":[{"role":"user","content":"hi"}]})";

std::vector<TokenId> Endless(const Request&, int32_t) {
  return {'a'};
}

FakeEngineOptions EndlessEngine() {
  FakeEngineOptions options{.script = Endless};
  options.limits.context_tokens_max = 1'000'000'000;
  options.limits.kv_tokens_max = 1'000'000'000;
  return options;
}

std::string PostText(std::string_view path, std::string_view body) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

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
    EXPECT_EQ(StatusFor(rig, std::string(method) + " /health HTTP/1.1\r\n\r\n"), 405) << method;
    EXPECT_EQ(StatusFor(rig, std::string(method) + " /nothing HTTP/1.1\r\n\r\n"), 404) << method;
  }
  EXPECT_EQ(StatusFor(rig, "GET http://localhost/health HTTP/1.1\r\n\r\n"), 200);
  EXPECT_EQ(StatusFor(rig, "OPTIONS * HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusFor(rig, "GET /%zz HTTP/1.1\r\n\r\n"), 400);
}

TEST(HttpSockets, HeadHasTheLengthAndNoBody) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send("HEAD /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
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
              std::to_string(sizeof(kChatStream) - 1) + "\r\n\r\n" + kChatStream);
  const HttpAnswer events = stream.Receive();
  EXPECT_EQ(events.Header("transfer-encoding"), "");
  const EventStream parsed(events.body);
  EXPECT_TRUE(parsed.well_formed && parsed.done);
}

// OPS-09: one packet, many requests, answered in order, errors among them.
TEST(HttpSockets, Pipelining) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send("DELETE /health HTTP/1.1\r\n\r\n" + PostText("/v1/chat/completions", kChatStream) +
              "\r\nGET /version HTTP/1.1\r\n\r\n" + PostText("/v1/chat/completions", "{") +
              PostText("/tokenize", R"({"prompt":"a"})") + "GET /nothing HTTP/1.1\r\n\r\n" +
              PostText("/nothing", ""));
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
  for (const char c : PostText("/v1/chat/completions", kChat)) client.Send(std::string_view(&c, 1));
  EXPECT_EQ(client.Receive().status, 200);
}

TEST(HttpSockets, ChunkedBodies) {
  GatewayRig rig;
  HttpClient client(rig.gateway->port());
  client.Send(
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
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
    client.Send(std::string(head) + " HTTP/1.1\r\nContent-Length: 40\r\n\r\n" +
                "GET /health HTTP/1.1\r\n\r\nGET /health HT");
    const HttpAnswer answer = client.Receive();
    EXPECT_GE(answer.status, 404);
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST(HttpSockets, ExpectContinue) {
  GatewayRig rig;
  const std::string head =
      "Content-Length: " + std::to_string(sizeof(kChat) - 1) + "\r\nExpect: 100-continue\r\n\r\n";
  HttpClient client(rig.gateway->port());
  client.Send("POST /v1/chat/completions HTTP/1.1\r\n" + head);
  EXPECT_EQ(client.ReceiveHead().status, 100);
  client.Send(kChat);
  EXPECT_EQ(client.Receive().status, 200);
  // Both at once, too.
  client.Send("POST /v1/chat/completions HTTP/1.1\r\n" + head + kChat);
  EXPECT_EQ(client.ReceiveHead().status, 100);
  EXPECT_EQ(client.Receive().status, 200);
  // Refused without asking for the body.
  EXPECT_EQ(StatusFor(rig, "POST /nothing HTTP/1.1\r\n" + head), 404);
  EXPECT_EQ(StatusFor(rig, "GET /v1/completions HTTP/1.1\r\n" + head), 405);
  EXPECT_EQ(StatusFor(rig,
                      "POST /v1/completions HTTP/1.1\r\nContent-Length: 999999999999\r\n"
                      "Expect: 100-continue\r\n\r\n"),
            413);
  EXPECT_EQ(StatusFor(rig,
                      "POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n"
                      "Expect: something\r\n\r\n"),
            417);
}

// OPS-08, OPS-10: framing that is hostile or broken is refused, and nothing is allocated for it.
TEST(HttpSockets, BrokenFraming) {
  GatewayRig rig({.script = Say("x")}, {.limits = {.body_bytes_max = 100'000}});
  const std::string post = "POST /v1/completions HTTP/1.1\r\n";
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
      {"GET /" + std::string(1'000'000, 'a') + " HTTP/1.1\r\n\r\n", 414},
      {"GET /health HTTP/1.1\r\nX: " + std::string(1'000'000, 'a') + "\r\n\r\n", 431},
      {"GET /health HTTP/3.7\r\n\r\n", 400},
      {"GET /health\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x05\x01\x01\xfc\x03\x03 hello over TLS\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET /health HTTP/1.1\r\nA\x01: b\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 19), 400}};
  for (const auto& [bytes, status] : cases) {
    HttpClient client(rig.gateway->port());
    client.Send(bytes);
    const HttpAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 120);
    EXPECT_THAT(answer.body, HasSubstr(R"("type":"invalid_request_error")")) << answer.body;
    EXPECT_EQ(answer.Header("connection"), "close");
    EXPECT_TRUE(client.AtEnd());
  }
  std::string many = "GET /health HTTP/1.1\r\n";
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
  client.Send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" +
              std::string(kChat));
  client.ShutdownSend();
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(rig.engine.submitted().empty());
}

// CAN-07: an id that is safe comes back, any other is replaced.
TEST(HttpSockets, RequestIds) {
  GatewayRig rig;
  const auto id_for = [&](const std::string& id) {
    return rig.Post("/v1/chat/completions", kChatStream, "X-Request-Id: " + id + "\r\n")
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
  EXPECT_EQ(StatusFor(rig, "GET /nothing HTTP/1.1\r\nX-Request-Id: x\r\n\r\n"), 404);
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

// CAN-01, CAN-02, CAN-03, CAN-09: FIN and RST, streaming and not, running, queued, several
// sequences.
TEST(HttpSockets, ClientsThatLeaveAreCancelledAtOnce) {
  FakeEngineOptions options = EndlessEngine();
  options.running_max = 1;
  GatewayRig rig(options);
  rig.engine.AllowTokens(3);
  uint64_t cancelled = 0;
  for (const bool stream : {false, true}) {
    for (const bool reset : {false, true}) {
      for (const std::string extra : {"", R"(,"n":4)"}) {
        const std::string body = R"({"messages":[{"role":"user","content":"hi"}],"stream":)" +
                                 std::string(stream ? "true" : "false") + extra + "}";
        HttpClient running(rig.gateway->port());
        running.Post("/v1/chat/completions", body);
        HttpClient queued(rig.gateway->port());
        queued.Post("/v1/chat/completions", body);
        ASSERT_TRUE(rig.engine.WaitUntilSubmitted(cancelled + 2));
        if (stream) {
          EXPECT_EQ(running.ReceiveHead().status, 200);
          EXPECT_TRUE(running.ReceiveChunk().has_value());
        }
        reset ? queued.Reset() : queued.Close();
        ASSERT_TRUE(rig.engine.WaitUntilCancelled(cancelled + 1));
        reset ? running.Reset() : running.Close();
        ASSERT_TRUE(rig.engine.WaitUntilCancelled(cancelled + 2));
        cancelled += 2;
      }
    }
  }
  ASSERT_TRUE(rig.engine.WaitUntilIdle());
  EXPECT_EQ(rig.engine.Stats().requests_cancelled, cancelled);
  rig.engine.AllowTokens(100);
  EXPECT_EQ(rig.Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],
                                                  "max_tokens":5})")
                .status,
            200);
}

// A list of prompts is one call: all of it goes.
TEST(HttpSockets, LeavingCancelsEveryPrompt) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(1);
  HttpClient client(rig.gateway->port());
  client.Post("/v1/completions", R"({"prompt":["a","b","c","d"],"max_tokens":100,"stream":true})");
  EXPECT_EQ(client.ReceiveHead().status, 200);
  client.Close();
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(4));
}

// CAN-05, OPS-01: many leave, nothing stays; counters never fall, and add up.
TEST(HttpSockets, ManyClientsThatLeave) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(100);
  std::atomic<bool> done = false;
  std::thread scraper([&] {
    uint64_t last = 0;
    while (!done) {
      const std::string page = rig.Get("/metrics").body;
      const std::string name = "polysil_requests_total{outcome=\"cancelled\"} ";
      const uint64_t now = std::stoull(page.substr(page.find(name) + name.size()));
      EXPECT_GE(now, last);
      last = now;
    }
  });
  std::vector<std::thread> clients;
  for (int thread = 0; thread < 4; ++thread) {
    clients.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) {
        HttpClient client(rig.gateway->port());
        client.Post("/v1/chat/completions", kChatStream);
        EXPECT_EQ(client.ReceiveHead().status, 200);
        EXPECT_TRUE(client.ReceiveEvents((i + thread) % 5));
        (i % 2 == 0) ? client.Close() : client.Reset();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(200));
  ASSERT_TRUE(rig.engine.WaitUntilIdle());
  done = true;
  scraper.join();
  const EngineStats stats = rig.service->Stats();
  EXPECT_EQ(stats.requests_cancelled, 200u);
  EXPECT_EQ(stats.requests_running + stats.requests_waiting, 0);
}

// A client that only closes its sending side is taken as gone while its answer is being made, but
// gets what needs no waiting.
TEST(HttpSockets, HalfClosedClients) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(1);
  HttpClient quick(rig.gateway->port());
  quick.Send("GET /health HTTP/1.1\r\n\r\nGET /version HTTP/1.1\r\n\r\n");
  quick.ShutdownSend();
  EXPECT_EQ(quick.Receive().status, 200);
  EXPECT_EQ(quick.Receive().body, R"({"version":"1.2.3"})");
  EXPECT_TRUE(quick.AtEnd());
  HttpClient slow(rig.gateway->port());
  slow.Post("/v1/chat/completions", kChat);
  slow.ShutdownSend();
  EXPECT_TRUE(slow.AtEnd());
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
}

// A reader that falls behind is cut off at the bound; its neighbours do not notice.
TEST(HttpSockets, SlowReadersAreCutOff) {
  constexpr int64_t kStep = 500;  // tokens; their events are well below the bound
  GatewayRig rig(EndlessEngine(), {.limits = {.output_bytes_max = 500'000}});
  rig.engine.AllowTokens(1);
  HttpClient slow(rig.gateway->port(), /*receive_buffer=*/4096);
  slow.Post("/v1/chat/completions", kChatStream);
  EXPECT_EQ(slow.ReceiveHead().status, 200);
  HttpClient fast(rig.gateway->port());
  fast.Post("/v1/completions", R"({"prompt":"hi","stream":true,"max_tokens":100000000})");
  EXPECT_EQ(fast.ReceiveHead().status, 200);
  int64_t allowed = 1;
  // Both may produce; only one of them is read.
  while (rig.engine.cancels().empty() && allowed < 200'000) {
    rig.engine.AllowTokens(allowed += kStep);
    ASSERT_TRUE(fast.ReceiveEvents(allowed));
  }
  EXPECT_EQ(rig.engine.cancels(), std::vector<RequestId>{rig.engine.submitted()[0].id});
  rig.engine.AllowTokens(allowed + kStep);
  EXPECT_TRUE(fast.ReceiveEvents(allowed + kStep));
}

// Without any bound reached, a reader that takes nothing is cut off by time.
TEST(HttpSockets, ReadersThatTakeNothingTimeOut) {
  FakeEngineOptions options = EndlessEngine();
  GatewayRig rig(options, {.limits = {.output_bytes_max = 64 * 1024 * 1024,
                                      .write_timeout = milliseconds(300)}});
  HttpClient slow(rig.gateway->port(), /*receive_buffer=*/4096);
  slow.Post("/v1/chat/completions", kChatStream);
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
}

// OPS-10: slow senders get 408 and do not hold a place; idle connections are closed.
TEST(HttpSockets, SlowSenders) {
  GatewayRig rig({.script = Say("x")}, {.limits = {.header_timeout = milliseconds(200),
                                                   .body_timeout = milliseconds(200),
                                                   .body_bytes_per_second_min = 1 << 30,
                                                   .idle_timeout = milliseconds(200)}});
  HttpClient in_head(rig.gateway->port());
  in_head.Send("GET /health HT");
  EXPECT_EQ(in_head.Receive().status, 408);
  EXPECT_TRUE(in_head.AtEnd());
  HttpClient in_body(rig.gateway->port());
  in_body.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 50\r\n\r\n{");
  EXPECT_EQ(in_body.Receive().status, 408);
  HttpClient silent(rig.gateway->port());
  EXPECT_TRUE(silent.AtEnd());
  HttpClient idle(rig.gateway->port());
  idle.Get("/health");
  EXPECT_EQ(idle.Receive().status, 200);
  EXPECT_TRUE(idle.AtEnd());
  // Bytes that come, but too slowly, do not help.
  HttpClient dripping(rig.gateway->port());
  const auto begin = std::chrono::steady_clock::now();
  std::string head = "POST /tokenize HTTP/1.1\r\nContent-Length: 500000\r\n\r\n";
  dripping.Send(head);
  std::thread drip([&] {
    while (dripping.Send("x") &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(30)) {
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(dripping.Receive().status, 408);
  dripping.ShutdownSend();
  drip.join();
}

TEST(HttpSockets, ConnectionsAreBounded) {
  GatewayRig rig({.script = Say("x")}, {.connections_max = 3});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<HttpClient>(rig.gateway->port()));
    clients.back()->Get("/health");
    EXPECT_EQ(clients.back()->Receive().status, 200);
  }
  HttpClient one_more(rig.gateway->port());
  const HttpAnswer answer = one_more.Receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.Header("retry-after"), "1");
  EXPECT_TRUE(one_more.AtEnd());
  clients[0]->Get("/health");
  EXPECT_EQ(clients[0]->Receive().status, 200);
}

TEST(HttpSockets, BodiesAreBoundedTogether) {
  GatewayRig rig({.script = Say("x")}, {.bodies_bytes_max = 100'000});
  HttpClient first(rig.gateway->port());
  first.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 90000\r\n\r\n" + std::string(80'000, ' '));
  HttpClient second(rig.gateway->port());
  HttpAnswer answer;
  // The first body is charged as it is read; until then the second may still pass.
  do {
    HttpClient probe(rig.gateway->port());
    probe.Post("/tokenize", std::string(50'000, ' '));
    answer = probe.Receive();
  } while (answer.status == 400);
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.Header("retry-after"), "1");
  first.Close();
  do {
    HttpClient probe(rig.gateway->port());
    probe.Post("/tokenize", std::string(50'000, ' '));
    answer = probe.Receive();
  } while (answer.status == 429);
  EXPECT_EQ(answer.status, 400);  // given back: blanks are no JSON
}

// TOK-14: a long prompt is worked on elsewhere: with one io thread, streams and health go on while
// it is tokenized.
TEST(HttpSockets, LongPromptsDoNotStopStreams) {
  GatewayRig rig(EndlessEngine(), {.threads = 1});
  rig.engine.AllowTokens(200);
  std::promise<void> release;
  std::promise<void> started;
  // Holds the one text thread, as a very long text would.
  ASSERT_TRUE(rig.service
                  ->Run(1 << 20,
                        [&] {
                          started.set_value();
                          release.get_future().wait();
                        })
                  .ok());
  started.get_future().wait();
  HttpClient long_prompt(rig.gateway->port());
  long_prompt.Post("/tokenize", "{\"prompt\":\"" + std::string(10'000'000, 'a') + "\"}");
  HttpClient stream(rig.gateway->port());
  stream.Post("/v1/chat/completions", kChatStream);
  EXPECT_EQ(stream.ReceiveHead().status, 200);
  EXPECT_TRUE(stream.ReceiveEvents(100));
  EXPECT_EQ(rig.Get("/health").status, 200);
  release.set_value();
  EXPECT_EQ(long_prompt.Receive().Json().at("count").as_int64(), 10'000'000);
}

TEST(HttpSockets, ThirtyTwoStreamsAtOnce) {
  GatewayRig rig({.script = [](const Request& request, int32_t) {
    std::vector<TokenId> ids(100, request.prompt[0]);
    ids.push_back(ByteTokenizer::kTurnEnd);
    return ids;
  }});
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef";
  std::vector<std::future<std::string>> texts;
  for (const char letter : letters) {
    texts.push_back(std::async(std::launch::async, [&rig, letter] {
      const HttpAnswer answer =
          rig.Post("/v1/completions", std::string("{\"prompt\":\"") + letter +
                                          "\",\"max_tokens\":200,\"stream\":true}");
      const EventStream stream(answer.body);
      std::string text;
      for (const boost::json::object& event : stream.events) {
        text += std::string(event.at("choices").as_array().at(0).at("text").as_string());
      }
      return stream.done ? text : "unfinished";
    }));
  }
  for (size_t i = 0; i < letters.size(); ++i) {
    EXPECT_EQ(texts[i].get(), std::string(100, letters[i]));
  }
}

// OPS-06: streams go on to their end, idle connections close, new ones are not taken.
TEST(HttpSockets, StopFinishesStreams) {
  GatewayRig rig({.script = Say("Hello")});
  rig.engine.AllowTokens(2);
  HttpClient idle(rig.gateway->port());
  idle.Get("/health");
  EXPECT_EQ(idle.Receive().status, 200);
  HttpClient stream(rig.gateway->port());
  stream.Post("/v1/chat/completions", kChatStream);
  EXPECT_EQ(stream.ReceiveHead().status, 200);
  std::future<bool> stopped =
      std::async(std::launch::async, [&] { return rig.gateway->Stop(std::chrono::seconds(60)); });
  EXPECT_TRUE(idle.AtEnd());
  rig.engine.AllowTokens(100);
  std::string rest;
  while (const auto chunk = stream.ReceiveChunk()) {
    if (chunk->empty()) break;
    rest += *chunk;
  }
  EXPECT_TRUE(EventStream(rest).done);
  stream.Close();
  EXPECT_TRUE(stopped.get());
  EXPECT_FALSE(HttpClient(rig.gateway->port()).connected());
}

TEST(HttpSockets, StopCutsOffWhatDoesNotEnd) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(2);
  HttpClient stream(rig.gateway->port());
  stream.Post("/v1/chat/completions", kChatStream);
  EXPECT_EQ(stream.ReceiveHead().status, 200);
  EXPECT_FALSE(rig.gateway->Stop(milliseconds(50)));
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
}

TEST(HttpSockets, AddressesThatCannotBeBound) {
  GatewayRig rig;
  for (const std::string& address : {std::string("nonsense"), std::string("127.0.0.1"),
                                     std::string("256.0.0.1:80"), std::string("127.0.0.1:99999")}) {
    EXPECT_FALSE(HttpGateway::Create({.address = address}, *rig.service).ok()) << address;
  }
  EXPECT_EQ(HttpGateway::Create({.address = rig.gateway->address()}, *rig.service).status().code(),
            StatusCode::kUnavailable);
  EXPECT_FALSE(HttpGateway::Create({.address = "127.0.0.1:0", .threads = 0}, *rig.service).ok());
  auto named = HttpGateway::Create({.address = "localhost:0"}, *rig.service);
  ASSERT_TRUE(named.ok());
  EXPECT_GT((*named)->port(), 0);
}

}  // namespace
}  // namespace polysil

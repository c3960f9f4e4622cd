// Clients that misbehave, or are many: those that leave, read slowly, send slowly; bounds; long
// prompts beside streams; orderly stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "gateway/socket_bodies.h"
#include "session/text_hold.h"

namespace polysil {
namespace {

using std::chrono::milliseconds;

// CAN-01, CAN-02, CAN-03, CAN-09: FIN and RST, streaming and not, running, queued, several
// sequences.
TEST(HttpClients, ClientsThatLeaveAreCancelledAtOnce) {
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
        ASSERT_TRUE(rig.engine.WaitUntilSubmitted(cancelled + 1));
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
TEST(HttpClients, LeavingCancelsEveryPrompt) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(1);
  HttpClient client(rig.gateway->port());
  client.Post("/v1/completions", R"({"prompt":["a","b","c","d"],"max_tokens":100,"stream":true})");
  EXPECT_EQ(client.ReceiveHead().status, 200);
  client.Close();
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(4));
}

// CAN-05, OPS-01: many leave, nothing stays; counters never fall, and add up.
TEST(HttpClients, ManyClientsThatLeave) {
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
        client.Post("/v1/chat/completions", kChatStreamBody);
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
TEST(HttpClients, HalfClosedClients) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(1);
  HttpClient quick(rig.gateway->port());
  quick.Send("GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /version HTTP/1.1\r\nHost: a\r\n\r\n");
  quick.ShutdownSend();
  EXPECT_EQ(quick.Receive().status, 200);
  EXPECT_EQ(quick.Receive().body, R"({"version":"1.2.3"})");
  EXPECT_TRUE(quick.AtEnd());
  HttpClient slow(rig.gateway->port());
  slow.Post("/v1/chat/completions", kChatBody);
  slow.ShutdownSend();
  EXPECT_TRUE(slow.AtEnd());
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
}

// A reader that falls behind is cut off at the bound; its neighbours do not notice.
TEST(HttpClients, SlowReadersAreCutOff) {
  constexpr int64_t kStep = 200;  // tokens; the events of the fast one are well below the bound
  GatewayRig rig(EndlessEngine(), {.limits = {.output_bytes_max = 200'000}});
  rig.engine.AllowTokens(1);
  HttpClient slow(rig.gateway->port(), /*receive_buffer=*/4096);
  slow.Post("/v1/chat/completions", kWideStreamBody);
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
TEST(HttpClients, ReadersThatTakeNothingTimeOut) {
  FakeEngineOptions options = EndlessEngine();
  GatewayRig rig(options, {.limits = {.output_bytes_max = 64 * 1024 * 1024,
                                      .write_timeout = milliseconds(300)}});
  HttpClient slow(rig.gateway->port(), /*receive_buffer=*/4096);
  slow.Post("/v1/chat/completions", kWideStreamBody);
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
}

// OPS-10: slow senders get 408 and do not hold a place; idle connections are closed.
TEST(HttpClients, SlowSenders) {
  GatewayRig rig({.script = Say("x")}, {.limits = {.header_timeout = milliseconds(200),
                                                   .body_timeout = milliseconds(200),
                                                   .body_bytes_per_second_min = 1 << 30,
                                                   .idle_timeout = milliseconds(200)}});
  HttpClient in_head(rig.gateway->port());
  in_head.Send("GET /health HT");
  EXPECT_EQ(in_head.Receive().status, 408);
  EXPECT_TRUE(in_head.AtEnd());
  HttpClient in_body(rig.gateway->port());
  in_body.Send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n{");
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
  std::string head = "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n";
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

TEST(HttpClients, ConnectionsAreBounded) {
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

TEST(HttpClients, BodiesAreBoundedTogether) {
  GatewayRig rig({.script = Say("x")}, {.bodies_bytes_max = 100'000});
  std::optional<HttpClient> first;
  HttpAnswer answer;
  // A body is charged as it is read. Should the probe be read first, it passes.
  do {
    first.emplace(rig.gateway->port());
    first->Send("POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 90000\r\n\r\n" +
                std::string(80'000, ' '));
    HttpClient probe(rig.gateway->port());
    probe.Post("/tokenize", std::string(50'000, ' '));
    answer = probe.Receive();
  } while (answer.status == 400);
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.Header("retry-after"), "1");
  first.reset();
  do {
    HttpClient probe(rig.gateway->port());
    probe.Post("/tokenize", std::string(50'000, ' '));
    answer = probe.Receive();
  } while (answer.status == 429);
  EXPECT_EQ(answer.status, 400);  // given back: blanks are no JSON
}

// TOK-14: a long prompt is worked on elsewhere: with one io thread, streams and health go on while
// it is tokenized.
TEST(HttpClients, LongPromptsDoNotStopStreams) {
  GatewayRig rig(EndlessEngine(), {.threads = 1}, {.threads = 1});
  rig.engine.AllowTokens(200);
  TextHold hold(*rig.service);
  HttpClient long_prompt(rig.gateway->port());
  long_prompt.Post("/tokenize", "{\"prompt\":\"" + std::string(10'000'000, 'a') + "\"}");
  HttpClient stream(rig.gateway->port());
  stream.Post("/v1/chat/completions", kChatStreamBody);
  EXPECT_EQ(stream.ReceiveHead().status, 200);
  EXPECT_TRUE(stream.ReceiveEvents(100));
  EXPECT_EQ(rig.Get("/health").status, 200);
  hold.Release();
  EXPECT_EQ(long_prompt.Receive().Json().at("count").as_int64(), 10'000'000);
}

// Leaving works while the text still waits for its thread, too.
TEST(HttpClients, LeavingBeforeTheTextWasRead) {
  GatewayRig rig(EndlessEngine(), {}, {.threads = 1});
  rig.engine.AllowTokens(1);
  TextHold hold(*rig.service);
  HttpClient client(rig.gateway->port());
  client.Post("/v1/completions",
              R"({"prompt":"hi","ignored":")" + std::string(100'000, 'x') + "\"}");
  client.Close();
  std::promise<void> after;
  ASSERT_TRUE(rig.service->Run(1 << 20, {}, [&] { after.set_value(); }).ok());
  hold.Release();
  after.get_future().wait();
  EXPECT_TRUE(rig.engine.WaitUntilIdle());
}

TEST(HttpClients, ThirtyTwoStreamsAtOnce) {
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
TEST(HttpClients, StopFinishesStreams) {
  GatewayRig rig({.script = Say("Hello")});
  rig.engine.AllowTokens(2);
  HttpClient idle(rig.gateway->port());
  idle.Get("/health");
  EXPECT_EQ(idle.Receive().status, 200);
  HttpClient stream(rig.gateway->port());
  stream.Post("/v1/chat/completions", kChatStreamBody);
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

TEST(HttpClients, StopCutsOffWhatDoesNotEnd) {
  GatewayRig rig(EndlessEngine());
  rig.engine.AllowTokens(2);
  HttpClient stream(rig.gateway->port());
  stream.Post("/v1/chat/completions", kChatStreamBody);
  EXPECT_EQ(stream.ReceiveHead().status, 200);
  EXPECT_FALSE(rig.gateway->Stop(milliseconds(50)));
  EXPECT_TRUE(rig.engine.WaitUntilCancelled(1));
}

TEST(HttpClients, AddressesThatCannotBeBound) {
  GatewayRig rig;
  for (const std::string& address : {std::string("nonsense"), std::string("127.0.0.1"),
                                     std::string("256.0.0.1:80"), std::string("127.0.0.1:99999")}) {
    EXPECT_FALSE(HttpGateway::Create({.address = address}, rig.slot).ok()) << address;
  }
  EXPECT_EQ(HttpGateway::Create({.address = rig.gateway->address()}, rig.slot).status().code(),
            StatusCode::kUnavailable);
  EXPECT_FALSE(HttpGateway::Create({.address = "127.0.0.1:0", .threads = 0}, rig.slot).ok());
  auto named = HttpGateway::Create({.address = "localhost:0"}, rig.slot);
  ASSERT_TRUE(named.ok());
  EXPECT_GT((*named)->port(), 0);
}

}  // namespace
}  // namespace polysil

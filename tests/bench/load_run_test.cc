#include "bench/load_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bench/canned_server.h"
#include "bench/load_report.h"
#include "bench/sse_reader.h"

namespace polysil {
namespace {

namespace json = boost::json;

constexpr std::string_view kModels = R"({"data": [{"id": "small"}, {"id": "large"}]})";
constexpr std::string_view kStream = "text/event-stream";

// A good answer of so many tokens; each word of the request is a token of the prompt.
std::string GoodStream(const std::string& body, int tokens) {
  std::string stream = "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\"}}]}\n\n";
  for (int i = 0; i < tokens; ++i) {
    stream += "data: {\"choices\": [{\"text\": \" t\", \"finish_reason\": null}]}\n\n";
  }
  stream += "data: {\"choices\": [{\"text\": \"\", \"finish_reason\": \"length\"}]}\n\n";
  const json::value request = json::parse(body);
  std::string text;
  if (request.as_object().contains("prompt")) {
    text = request.at("prompt").as_string();
  } else {
    for (const json::value& message : request.at("messages").as_array()) {
      text += " " + std::string(message.at("content").as_string());
    }
  }
  const auto words = std::ranges::count(text, ' ') + 1;
  return stream + fmt::format(
                      "data: {{\"choices\": [], \"usage\": {{\"prompt_tokens\": {}, "
                      "\"completion_tokens\": {}}}}}\n\ndata: [DONE]\n\n",
                      words, tokens);
}

// Serves what it should: models, and tokens as many as are asked for. Keeps the requests.
class GoodServer final {
 public:
  const std::string url() const { return server_.url(); }
  std::vector<json::object> Requests() {
    std::lock_guard lock(mutex_);
    // The first two ask how many tokens a word is.
    return {requests_.begin() + 2, requests_.end()};
  }

 private:
  std::string Answer(const std::string& path, const std::string& body) {
    if (path == "/v1/models") return CannedServer::Http("200 OK", "application/json", kModels);
    const json::value request = json::parse(body);
    {
      std::lock_guard lock(mutex_);
      requests_.push_back(request.as_object());
    }
    const auto tokens = static_cast<int>(request.at("max_tokens").as_int64());
    return CannedServer::Http("200 OK", kStream, GoodStream(body, tokens));
  }

  std::mutex mutex_;
  std::vector<json::object> requests_;
  CannedServer server_{[this](const auto& path, const auto& body) { return Answer(path, body); }};
};

struct Outcome {
  Status status;
  std::vector<CallRecord> calls;
  LoadTotals totals;
  json::object report;
  std::string model;
};

Outcome RunLoad(const LoadOptions& options) {
  const SteadyClock clock;
  Outcome outcome{.status = Validate(options)};
  if (!outcome.status.ok()) return outcome;
  auto run = LoadRun::Create(options, clock);
  outcome.status = run.ok() ? (*run)->Prepare() : run.status();
  if (!outcome.status.ok()) return outcome;
  LoadReport report(options);
  outcome.totals = (*run)->Run(
      [&](const CallRecord& call) {
        outcome.calls.push_back(call);
        report.Add(call);
      },
      [](const LoadProgress&) {});
  outcome.model = (*run)->model();
  outcome.report = json::parse(report.Json(outcome.totals, outcome.model)).as_object();
  return outcome;
}

TEST(LoadRun, AClosedLoopSendsAllAndCountsWhatCameBack) {
  GoodServer server;
  const Outcome outcome = RunLoad({.url = server.url() + "/v1/",
                                   .concurrency = 3,
                                   .requests = 10,
                                   .input_tokens = 20,
                                   .output_tokens = 4});
  ASSERT_TRUE(outcome.status.ok()) << Message(outcome.status);
  EXPECT_EQ(outcome.model, "small");
  EXPECT_EQ(outcome.report.at("completed"), 10);
  EXPECT_EQ(outcome.report.at("failed"), 0);
  EXPECT_EQ(outcome.report.at("total_input_tokens"), 200);
  EXPECT_EQ(outcome.report.at("total_output_tokens"), 40);
  EXPECT_EQ(outcome.report.at("tokens_counted_by_server"), true);
  EXPECT_LE(outcome.totals.in_flight_max, 3);
  for (const CallRecord& call : outcome.calls) {
    EXPECT_EQ(call.output_tokens, 4);
    EXPECT_EQ(call.gaps_ms.size(), 3U);
    EXPECT_EQ(call.finish_reason, "length");
    EXPECT_LE(call.due_ns, call.sent_ns);
    EXPECT_LE(call.sent_ns, call.first_token_ns);
    EXPECT_LE(call.first_token_ns, call.last_token_ns);
    EXPECT_LE(call.last_token_ns, call.end_ns);
  }
  std::set<std::string> prompts;
  for (const json::object& request : server.Requests()) {
    prompts.emplace(request.at("prompt").as_string());
    EXPECT_EQ(request.at("ignore_eos"), true);
    EXPECT_EQ(request.at("stream"), true);
  }
  EXPECT_EQ(prompts.size(), 10U);
}

TEST(LoadRun, AnOpenLoopIsDueWhenArrivalsSay) {
  GoodServer server;
  const Outcome outcome = RunLoad({.url = server.url(),
                                   .rate = 500,
                                   .burstiness = 0.5,
                                   .requests = 20,
                                   .output_tokens = 1,
                                   .seed = 9});
  ASSERT_TRUE(outcome.status.ok()) << Message(outcome.status);
  Arrivals arrivals(500, 0.5, 9);
  std::vector<int64_t> due(20);
  for (const CallRecord& call : outcome.calls) {
    due[static_cast<size_t>(call.session)] = call.due_ns;
    EXPECT_GE(call.sent_ns, call.due_ns);
  }
  for (const int64_t due_ns : due) {
    EXPECT_EQ(due_ns, arrivals.next_ns());
    arrivals.Advance();
  }
  EXPECT_EQ(outcome.report.at("request_rate"), 500.0);
}

TEST(LoadRun, ASessionGoesOnWithTheConversationSoFar) {
  GoodServer server;
  for (const bool chat : {true, false}) {
    const size_t before = chat ? 0 : 3;
    const Outcome outcome = RunLoad({.url = server.url(),
                                     .chat = chat,
                                     .concurrency = 1,
                                     .requests = 1,
                                     .input_tokens = 3,
                                     .shared_prefix_tokens = 2,
                                     .turns = 3,
                                     .output_tokens = 2});
    ASSERT_TRUE(outcome.status.ok()) << Message(outcome.status);
    EXPECT_EQ(outcome.report.at("completed"), 3);
    ASSERT_EQ(outcome.calls.size(), 3U);
    EXPECT_EQ(outcome.calls[2].turn, 2);
    // The second run's two small requests lie in between.
    const std::vector<json::object> requests = server.Requests();
    const json::object& last = requests.at(chat ? 2 : before + 2 + 2);
    if (chat) {
      std::vector<std::string> roles;
      for (const json::value& message : last.at("messages").as_array()) {
        roles.emplace_back(message.at("role").as_string());
      }
      EXPECT_EQ(roles, (std::vector<std::string>{"system", "user", "assistant", "user", "assistant",
                                                 "user"}));
      EXPECT_EQ(last.at("messages").at(2).at("content"), " t t");
    } else {
      const std::string prompt(last.at("prompt").as_string());
      const std::string first(requests.at(before + 2).at("prompt").as_string());
      EXPECT_TRUE(prompt.starts_with(first + " t t\n\n")) << prompt;
    }
  }
}

TEST(LoadRun, ACancelledRequestIsNeitherCompletedNorFailed) {
  GoodServer server;
  const Outcome outcome = RunLoad({.url = server.url(),
                                   .concurrency = 2,
                                   .requests = 40,
                                   .output_tokens = 50,
                                   .cancel_after_tokens = 5,
                                   .cancel_share = 0.5});
  ASSERT_TRUE(outcome.status.ok()) << Message(outcome.status);
  int64_t cancelled = 0;
  for (const CallRecord& call : outcome.calls) {
    if (call.outcome != CallOutcome::kCancelled) continue;
    ++cancelled;
    EXPECT_EQ(call.output_tokens, 5);
  }
  // 40 draws of one half: six standard deviations are 19.
  EXPECT_GT(cancelled, 1);
  EXPECT_LT(cancelled, 39);
  EXPECT_EQ(outcome.report.at("cancelled"), cancelled);
  EXPECT_EQ(outcome.report.at("completed"), 40 - cancelled);
  EXPECT_EQ(outcome.report.at("failed"), 0);
}

TEST(LoadRun, GoodputCountsRequestsWithinTheLimits) {
  GoodServer server;
  LoadOptions options = {.url = server.url(), .concurrency = 2, .requests = 6, .output_tokens = 3};
  EXPECT_TRUE(RunLoad(options).report.at("request_goodput").is_null());
  options.ttft_limit_ms = 1e8;
  Outcome outcome = RunLoad(options);
  EXPECT_EQ(outcome.report.at("request_goodput"), outcome.report.at("request_throughput"));
  options.ttft_limit_ms = 1e-6;
  outcome = RunLoad(options);
  EXPECT_EQ(outcome.report.at("request_goodput"), 0.0);
}

// Answers `answer` from the third completion on, so that the preparation passes.
Outcome RunAgainst(const std::string& answer, int good = 2) {
  std::atomic<int> asked = 0;
  CannedServer server([&](const std::string& path, const std::string& body) {
    if (path == "/v1/models") return CannedServer::Http("200 OK", "application/json", kModels);
    if (asked++ >= good) return answer;
    return CannedServer::Http("200 OK", kStream, GoodStream(body, 1));
  });
  return RunLoad({.url = server.url(), .concurrency = 1, .requests = 5});
}

TEST(LoadRun, FailuresAreCountedByKindWithSamples) {
  const auto http = [](std::string_view status, std::string_view type, std::string_view body) {
    return CannedServer::Http(status, type, body);
  };
  const std::string token = "data: {\"choices\": [{\"text\": \"a\"}]}\n\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {http("429 Too Many Requests", "application/json", "{\"error\": \"later\"}"), "http 429"},
      {http("200 OK", "application/json", "{\"choices\": []}"), "no event stream"},
      {http("200 OK", kStream, token), "unfinished stream"},
      {http("200 OK", kStream, "data: [DONE]\n\n"), "no token"},
      {http("200 OK", kStream, "data: {\"choi\n\n"), "bad event"},
      {http("200 OK", kStream, token + "data: {\"error\": {\"message\": \"fire\"}}\n\n"),
       "error in the stream"},
      {http("200 OK", kStream, std::string(SseReader::kEventBytesMax + 10, 'x')), "bad event"},
      {"", "broken connection"},
      {"SSH-2.0-x\r\n", "broken connection"}};
  for (const auto& [answer, kind] : cases) {
    const Outcome outcome = RunAgainst(answer);
    ASSERT_TRUE(outcome.status.ok()) << Message(outcome.status);
    EXPECT_EQ(outcome.report.at("failed"), 5) << kind;
    const json::object& errors = outcome.report.at("errors_by_kind").as_object();
    ASSERT_TRUE(errors.contains(kind)) << kind << ": " << json::serialize(errors);
    EXPECT_EQ(errors.at(kind).at("count"), 5);
    EXPECT_EQ(errors.at(kind).at("samples").as_array().size(), 1U);
  }
}

TEST(LoadRun, WhatIsWrongFromTheStartIsToldBeforeAnythingIsMeasured) {
  const auto message = [](const Outcome& outcome) { return Message(outcome.status); };
  std::string gone;
  {
    GoodServer server;
    gone = server.url();
  }
  EXPECT_NE(message(RunLoad({.url = gone, .concurrency = 1})).find("is the server running?"),
            std::string::npos);
  const std::string unknown = CannedServer::Http("404 Not Found", "application/json",
                                                 R"({"error": {"message": "no such model"}})");
  const std::string text = message(RunAgainst(unknown, 0));
  EXPECT_NE(text.find("model 'small'"), std::string::npos) << text;
  EXPECT_NE(text.find("no such model"), std::string::npos) << text;
  EXPECT_NE(message(RunAgainst(CannedServer::Http("200 OK", "text/html", "<p>"), 0))
                .find("not text/event-stream"),
            std::string::npos);
  CannedServer closed([](const std::string&, const std::string&) {
    return CannedServer::Http("401 Unauthorized", "text/plain", "");
  });
  EXPECT_NE(message(RunLoad({.url = closed.url(), .concurrency = 1})).find("--api-key"),
            std::string::npos);
}

TEST(LoadOptions, ContradictionsNameTheirFlags) {
  const auto message = [](LoadOptions options) {
    if (options.url.empty()) options.url = "http://h";
    return Message(Validate(options));
  };
  EXPECT_EQ(message({.concurrency = 1}), "");
  EXPECT_NE(message({.url = "h:80", .concurrency = 1}).find("--url"), std::string::npos);
  EXPECT_NE(message({}).find("--rate"), std::string::npos);
  EXPECT_NE(message({.rate = 1, .concurrency = 1}).find("one of"), std::string::npos);
  EXPECT_NE(message({.rate = 1, .prompts_path = "x", .input_tokens = 1}).find("--prompts"),
            std::string::npos);
  EXPECT_NE(message({.trace_path = "x", .turns = 2}).find("--turns"), std::string::npos);
  EXPECT_NE(message({.rate = 1, .burstiness = 0}).find("--burstiness"), std::string::npos);
  EXPECT_NE(message({.rate = 1, .duration_s = -1}).find("--duration"), std::string::npos);
  EXPECT_NE(message({.rate = 1, .cancel_share = 2}).find("--cancel-share"), std::string::npos);
  EXPECT_NE(message({.rate = 1, .requests = 2'000'000}).find("--requests"), std::string::npos);
}

}  // namespace
}  // namespace polysil

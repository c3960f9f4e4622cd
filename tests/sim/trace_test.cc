// Traces: what is read from a file, what prompts come of it, and what the production prefix cache
// finds on a published one.
#include "sim/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/engine_core.h"
#include "sim/plans.h"
#include "sim/run.h"

namespace polysil {
namespace {

class TraceFile final {
 public:
  explicit TraceFile(const std::string& text)
      : path_(testing::TempDir() + "polysil_trace_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl") {
    std::ofstream(path_) << text;
  }
  ~TraceFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(Trace, IsReadInTheOrderOfArrival) {
  const TraceFile file(
      "{\"timestamp\": 20, \"input_length\": 513, \"output_length\": 3, \"hash_ids\": [0, 7]}\n"
      "\n"
      "{\"timestamp\": 10, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [9]}\n");
  const auto trace = ReadTrace(file.path());
  ASSERT_TRUE(trace.ok()) << Message(trace.status());
  ASSERT_EQ(trace->size(), 2U);
  EXPECT_EQ(trace->at(0).arrival_ns, 10'000'000);
  EXPECT_EQ(trace->at(1).prompt_tokens, 513);
  EXPECT_EQ(trace->at(1).output_tokens, 3);
  EXPECT_EQ(trace->at(1).block_ids, (std::vector<uint32_t>{0, 7}));
}

TEST(Trace, EqualIdsAreEqualPrefixes) {
  const auto prompt = [](std::vector<uint32_t> ids, int32_t tokens) {
    return TracePrompt({.prompt_tokens = tokens, .block_ids = std::move(ids)});
  };
  const std::vector<TokenId> one = prompt({1, 2}, 1000);
  ASSERT_EQ(one.size(), 1000U);
  EXPECT_EQ(one, prompt({1, 2}, 1000));
  const std::vector<TokenId> other = prompt({1, 3}, 1000);
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 512, other.begin()));
  EXPECT_NE(one, other);
  // Ids that differ in their upper bits alone.
  EXPECT_NE(prompt({5}, 512), prompt({5 + (1U << 17)}, 512));
  for (const TokenId token : one) ASSERT_TRUE(token >= 0 && token < kTraceVocabSize);
}

struct BadLine {
  const char* text;
  const char* says;
};

TEST(Trace, ABadLineIsNamed) {
  constexpr const char* kGood =
      "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n";
  const BadLine lines[] = {
      {"nonsense", "line 2: it is no JSON"},
      {"[1]", "line 2: it is no JSON object"},
      {R"({"input_length": 1, "output_length": 1, "hash_ids": [0]})", "timestamp is no integer"},
      {R"({"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [0]})",
       "timestamp is -1"},
      {R"({"timestamp": 0, "input_length": 0, "output_length": 1, "hash_ids": []})",
       "input_length is 0"},
      {R"({"timestamp": 0, "input_length": 99999999999, "output_length": 1, "hash_ids": [0]})",
       "input_length is 99999999999"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 1.5, "hash_ids": [0]})",
       "output_length is no integer"},
      {R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [0]})",
       "hash_ids has 1 ids, 513 tokens are 2 blocks"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [-1]})",
       "hash_ids holds -1"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": "0"})",
       "hash_ids is no list"},
  };
  for (const BadLine& line : lines) {
    const TraceFile file(std::string(kGood) + line.text + "\n");
    const auto trace = ReadTrace(file.path());
    ASSERT_EQ(trace.status().code(), StatusCode::kInvalidArgument) << line.text;
    EXPECT_NE(Message(trace.status()).find(line.says), std::string::npos)
        << Message(trace.status());
  }
}

TEST(Trace, AFileThatIsNotThereOrEmptyIsRefused) {
  EXPECT_EQ(ReadTrace("/no/such/file").status().code(), StatusCode::kNotFound);
  const TraceFile empty("\n");
  EXPECT_EQ(ReadTrace(empty.path()).status().code(), StatusCode::kInvalidArgument);
}

TEST(Trace, IsReplayedToItsEnd) {
  std::vector<TraceRequest> requests;
  for (uint32_t i = 0; i < 40; ++i) {
    requests.push_back({.arrival_ns = int64_t{i} * 50'000'000,
                        .prompt_tokens = 1300,
                        .output_tokens = 20,
                        .block_ids = {0, 1 + i % 2, 10 + i}});
  }
  Simulation simulation(PlanOfTrace(requests, 100), true);
  const Status status = RunToEnd(simulation, {});
  ASSERT_TRUE(status.ok()) << Message(status);
  const EngineStats stats = simulation.stats();
  EXPECT_EQ(stats.requests_length, 40U);
  EXPECT_EQ(simulation.clients().output_tokens(), 800);
  EXPECT_EQ(simulation.clients().prompt_tokens(), 40 * 1300);
  // Each block of a pair of families is computed once or twice, where two come together.
  EXPECT_GE(stats.prefix_cache_hit_tokens, 34U * 2 * kTraceTokensPerBlock);
}

// How many blocks of the prompts are found in a pool of so many, one request after the other. A
// block of the trace stands as two tokens here, which are its id; one more token follows the last,
// so that all of them may be found. It takes a block that is never full.
int64_t BlocksFound(const std::vector<TraceRequest>& trace, int32_t blocks) {
  EngineCore core({.sequences_max = 1,
                   .queue_max = 0,
                   .limits = {.vocab_size = 1 << 16,
                              .context_tokens_max = 1 << 20,
                              .kv_tokens_max = 2 * (int64_t{blocks} + 1),
                              .sequences_max = 1},
                   .step_limits = {.tokens_max = 1 << 20, .sequences_max = 1},
                   .kv = {.blocks = blocks + 1, .tokens_per_block = 2}});
  int64_t found = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    Request request{.id = RequestId{i + 1}, .sampling = {.tokens_max = 1}};
    for (const uint32_t id : trace[i].block_ids) {
      request.prompt.push_back(static_cast<TokenId>(id & 0xFFFFU));
      request.prompt.push_back(static_cast<TokenId>(id >> 16));
    }
    request.prompt.push_back(0);
    EngineInputs arrival;
    arrival.submitted.push_back({std::make_shared<const Request>(std::move(request)), 0});
    const ScheduledStep step = core.Tick(0, arrival).steps.at(0);
    EngineInputs answer;
    answer.results.push_back({.step_id = step.step_id});
    answer.results[0].sequences.push_back({.id = step.sequences.at(0).id, .token = 0});
    found += core.Tick(0, answer).outputs.at(0).prompt_tokens_cached / 2;
  }
  return found;
}

TEST(Trace, HitRatiosOfTheConversationTraceAreThePublishedOnes) {
  const std::string path = POLYSIL_SHARED_DIR "/traces/mooncake_conversation.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "there is no " << path;
  const auto trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok()) << Message(trace.status());
  ASSERT_EQ(trace->size(), 12'031U);
  const int64_t total = std::accumulate(
      trace->begin(), trace->end(), int64_t{0}, [](int64_t sum, const TraceRequest& request) {
        return sum + static_cast<int64_t>(request.block_ids.size());
      });
  struct Published {
    int32_t blocks;
    double percent;
  };
  // 200,000 blocks hold all there are.
  for (const Published& each : {Published{200'000, 36.6},
                                {1'000, 4.5},
                                {3'000, 6.5},
                                {10'000, 21.2},
                                {30'000, 32.6},
                                {50'000, 35.5},
                                {100'000, 36.4}}) {
    const double percent =
        100.0 * static_cast<double>(BlocksFound(*trace, each.blocks)) / static_cast<double>(total);
    EXPECT_EQ(std::lround(percent * 10.0), std::lround(each.percent * 10.0))
        << each.blocks << " blocks: " << percent;
  }
}

}  // namespace
}  // namespace polysil

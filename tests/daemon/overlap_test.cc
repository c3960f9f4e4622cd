// Two steps in flight give the tokens of one: the engine builds a step before it knows the tokens
// that the step before chooses, and nobody can tell.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/engine_fixture.h"
#include "exec/local_executor.h"
#include "model/golden_model.h"

namespace polysil {
namespace {

struct OverlapSetting {
  int32_t steps_in_flight = 1;
  int32_t tokens_max = 64;
  int32_t blocks = 256;
  bool prefix_cache = true;
  int64_t itl_target_ns = 0;
};

struct OverlapOutcome {
  std::vector<std::vector<TokenId>> outputs;  // by request, then sample
  std::vector<FinishReason> reasons;
  EngineStats stats;
};

Request OverlapRequest(int32_t index, int32_t vocab_size) {
  Request request{.sampling = {.temperature = index % 3 == 0 ? 0.0F : 0.9F,
                               .top_p = index % 2 == 0 ? 1.0F : 0.9F,
                               .seed = static_cast<uint64_t>(index),
                               .tokens_max = 6 + index % 19 * 3}};
  if (index % 4 == 1) {
    request.sampling.repetition_penalty = 1.2F;
    request.sampling.frequency_penalty = 0.3F;
  }
  // Some have the same beginning as others, some end before their length.
  const int32_t salt = index % 5;
  for (int32_t i = 0; i < 5 + 13 * (index % 7); ++i) {
    request.prompt.push_back((i * i * 31 + i * 17 + salt * 101) % std::min(vocab_size, 500));
  }
  if (index % 6 == 2) {
    for (TokenId id = 0; id < vocab_size; id += 9) request.end_token_ids.push_back(id);
  }
  request.sequences = index % 5 == 4 ? 3 : 1;
  return request;
}

class Overlap : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path =
        GetParam() == "phi3" ? golden::SharedPath("tiny/phi3")
                             : std::string(POLYSIL_SOURCE_DIR) + "/tests/data/model/" + GetParam();
    if (!golden::Exists(path)) GTEST_SKIP() << path << " is not there";
    auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
  }

  OverlapOutcome Run(const OverlapSetting& setting) {
    auto executor =
        LocalExecutor::Create(golden::CpuDevice(CpuActivations::kQ8), *checkpoint_,
                              {.limits = {.tokens_max = setting.tokens_max,
                                          .sequences_max = 8,
                                          .steps_in_flight_max = setting.steps_in_flight},
                               .kv_blocks = setting.blocks,
                               .kv_block_tokens = 8});
    EXPECT_TRUE(executor.ok()) << executor.status();
    const SteadyClock clock;
    const int32_t vocab_size = checkpoint_->spec().vocab_size;
    auto engine = EngineThread::Create({.sequences_max = 8,
                                        .itl_target_ns = setting.itl_target_ns,
                                        .prefix_cache = setting.prefix_cache},
                                       {.vocab_size = vocab_size, .context_tokens_max = 160},
                                       *std::move(executor), clock);
    EXPECT_TRUE(engine.ok()) << engine.status();
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int32_t i = 0; i < kRequests; ++i) {
      Request request = OverlapRequest(i, vocab_size);
      sinks.push_back(std::make_shared<Collector>(request.sequences));
      EXPECT_TRUE((*engine)->Submit(std::move(request), sinks.back()).ok());
    }
    OverlapOutcome outcome;
    for (int32_t i = 0; i < kRequests; ++i) {
      sinks[static_cast<size_t>(i)]->WaitForEnd();
      const int32_t sequences = OverlapRequest(i, vocab_size).sequences;
      for (size_t s = 0; s < static_cast<size_t>(sequences); ++s) {
        outcome.outputs.push_back(sinks[static_cast<size_t>(i)]->tokens(s));
        outcome.reasons.push_back(*sinks[static_cast<size_t>(i)]->finish(s));
      }
    }
    outcome.stats = (*engine)->Stats();
    return outcome;
  }

  static constexpr int32_t kRequests = 30;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_P(Overlap, TokensAreThoseOfOneStepAtATime) {
  const OverlapOutcome expected = Run({});
  for (const FinishReason reason : expected.reasons) {
    EXPECT_TRUE(reason == FinishReason::kStop || reason == FinishReason::kLength);
  }
  EXPECT_GT(expected.stats.requests_stop, 0U);
  // Roomy; chunks everywhere; a pool for two sequences, so that they are preempted; no cache;
  // prompts in the smallest chunks, for want of time.
  const std::vector<OverlapSetting> settings = {
      {.steps_in_flight = 2},
      {.steps_in_flight = 2, .tokens_max = 9},
      {.steps_in_flight = 1, .blocks = 24},
      {.steps_in_flight = 2, .blocks = 24},
      {.steps_in_flight = 3, .tokens_max = 17, .blocks = 24, .prefix_cache = false},
      {.steps_in_flight = 2, .itl_target_ns = 1},
  };
  for (const OverlapSetting& setting : settings) {
    SCOPED_TRACE(fmt::format("{} steps of {} tokens, {} blocks", setting.steps_in_flight,
                             setting.tokens_max, setting.blocks));
    const OverlapOutcome outcome = Run(setting);
    EXPECT_EQ(outcome.outputs, expected.outputs);
    EXPECT_EQ(outcome.reasons, expected.reasons);
    if (setting.blocks < 256) {
      EXPECT_GT(outcome.stats.preemptions, 0U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Overlap,
                         testing::Values("llama-mixed.gguf", "gemma3-bf16", "phi3"),
                         [](const auto& param) {
                           return param.param.substr(0, param.param.find_first_of("-."));
                         });

}  // namespace
}  // namespace polysil

// EngineCore over a real model: the tokens of a request and the bits of its log-probabilities are
// as alone, though its prompt is chunked and batched, its prefix found in the cache, shared while
// it is being computed or brought back from the host tier, and it is preempted and swapped.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "exec/executor_driver.h"
#include "model/golden_model.h"

namespace polysil {
namespace {

constexpr int32_t kBlocks = 64;
constexpr int32_t kHostBlocks = 32;
constexpr int32_t kContext = 200;

using Streams = std::map<std::pair<RequestId, int32_t>, std::vector<OutputToken>>;

std::vector<std::pair<TokenId, float>> Bits(const std::vector<OutputToken>& tokens) {
  std::vector<std::pair<TokenId, float>> bits;
  for (const OutputToken& token : tokens) {
    bits.emplace_back(token.id, token.logprobs->chosen.logprob);
    for (const TokenLogprob& top : token.logprobs->top) bits.emplace_back(top.id, top.logprob);
  }
  return bits;
}

struct EngineCase {
  std::string name;
  CpuActivations activations;
  DType kv;
};

void PrintTo(const EngineCase& c, std::ostream* out) {
  *out << c.name;
}

class EngineExactness : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    const std::string data = std::string(POLYSIL_SOURCE_DIR) + "/tests/data/model/";
    auto checkpoint =
        OpenCheckpoint(data + (GetParam().name == "gemma3" ? "gemma3-bf16" : "llama-mixed.gguf"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    auto device = CreateCpuDevice({.threads = 2, .activations = GetParam().activations});
    ASSERT_TRUE(device.ok()) << device.status();
    auto executor = LocalExecutor::Create(*std::move(device), *checkpoint_,
                                          {.limits = {.tokens_max = 256,
                                                      .sequences_max = 16,
                                                      .prefill_sequences_max = 16,
                                                      .kv_host_blocks = kHostBlocks},
                                           .kv_blocks = kBlocks,
                                           .kv_block_tokens = 8,
                                           .kv_dtype = GetParam().kv});
    ASSERT_TRUE(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
    executor_->SetNotify([this] {
      std::lock_guard lock(mutex_);
      ++notified_;
      changed_.notify_all();
    });
  }

  EngineCoreOptions CoreOptions(int32_t blocks, int32_t tokens_max, bool prefix_cache) const {
    StepLimits limits = executor_->limits();
    limits.tokens_max = tokens_max;
    return {.sequences_max = 16,
            .queue_max = 64,
            .limits = {.vocab_size = checkpoint_->spec().vocab_size,
                       .context_tokens_max = kContext,
                       .kv_tokens_max = int64_t{blocks} * 8,
                       .sequences_max = 16},
            .step_limits = limits,
            .kv = {.blocks = blocks, .tokens_per_block = 8, .prefix_cache = prefix_cache}};
  }

  // The first `shared` tokens are those of the family.
  Request Ask(int32_t family, int32_t shared, int32_t tokens, uint64_t seed) const {
    Request request;
    const int32_t vocab = std::min(checkpoint_->spec().vocab_size, 300);
    for (int32_t i = 0; i < tokens; ++i) {
      const int32_t salt = i < shared ? family : static_cast<int32_t>(seed) * 13 + 5;
      request.prompt.push_back((i * i * 31 + i * 17 + salt * 101) % vocab);
    }
    request.sampling = {.temperature = 0.8F,
                        .top_p = 0.95F,
                        .frequency_penalty = 0.2F,
                        .seed = seed,
                        .tokens_max = 24,
                        .logprobs = 2};
    return request;
  }

  // Submits so many at a time, a step apart, and runs them to their end.
  Streams Run(EngineCore& core, const std::vector<Request>& requests, size_t at_once) {
    Streams streams;
    EngineInputs inputs;
    size_t submitted = 0;
    while (submitted < requests.size() || core.sequences_live() > 0) {
      for (size_t i = 0; i < at_once && submitted < requests.size(); ++i) {
        Request request = requests[submitted++];
        request.id = RequestId{submitted};
        inputs.submitted.push_back({std::make_shared<const Request>(std::move(request)), 0});
      }
      EngineActions& actions = core.Tick(++now_ns_, inputs);
      for (SequenceOutput& output : actions.outputs) {
        EXPECT_TRUE(output.status.ok()) << output.status;
        auto& stream = streams[{output.request, output.sequence_index}];
        for (OutputToken& token : output.tokens) stream.push_back(std::move(token));
      }
      for (ScheduledStep& step : actions.steps) inputs.results.push_back(Step(std::move(step)));
    }
    core.Tick(++now_ns_, inputs);
    return streams;
  }

  StepResult Step(ScheduledStep step) {
    executor_->Submit(std::move(step));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return notified_ > taken_; });
    ++taken_;
    std::optional<StepResult> result = executor_->Poll();
    EXPECT_TRUE(result.has_value() && result->status.ok());
    return *std::move(result);
  }

  // Each request in an engine of its own, with room for all and nothing kept.
  Streams Alone(const std::vector<Request>& requests) {
    Streams streams;
    for (size_t i = 0; i < requests.size(); ++i) {
      EngineCore core(CoreOptions(kBlocks, 256, false));
      for (auto& [key, tokens] : Run(core, {requests[i]}, 1)) {
        streams[{RequestId{i + 1}, key.second}] = std::move(tokens);
      }
    }
    return streams;
  }

  void ExpectSameStreams(const Streams& streams, const Streams& alone) {
    ASSERT_EQ(streams.size(), alone.size());
    for (const auto& [key, tokens] : streams) {
      EXPECT_EQ(Bits(tokens), Bits(alone.at(key)))
          << "request " << key.first.value << ", sequence " << key.second;
    }
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<LocalExecutor> executor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t notified_ = 0;
  int64_t taken_ = 0;
  int64_t now_ns_ = 0;
};

// PFX-04: a shared prompt with tails that part at every offset, and one prompt again and again.
TEST_P(EngineExactness, FoundInTheCache) {
  std::vector<Request> requests;
  for (int32_t shared = 1; shared <= 33; shared += 2) requests.push_back(Ask(1, shared, 40, 7));
  for (int32_t i = 0; i < 4; ++i) requests.push_back(Ask(1, 40, 40, 7));
  for (Request& request : requests) request.sampling.tokens_max = 4;
  const Streams alone = Alone(requests);
  EngineCore core(CoreOptions(kBlocks, 64, true));
  ExpectSameStreams(Run(core, requests, 1), alone);
  EXPECT_GT(core.stats().prefix_cache_hit_tokens, 17U * 16U);
}

TEST_P(EngineExactness, SharedWhileBeingComputed) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) requests.push_back(Ask(2, 60, 70, i));
  requests.push_back(Ask(2, 77, 77, 9));
  requests.back().sequences = 4;
  const Streams alone = Alone(requests);
  EngineCore core(CoreOptions(kBlocks, 24, true));
  ExpectSameStreams(Run(core, requests, requests.size()), alone);
  // All but the first found the 7 blocks that they share, and the last one's three others more.
  EXPECT_EQ(core.stats().prefix_cache_hit_tokens, 6U * 56U);
  EXPECT_EQ(core.stats().kv_blocks_copied_in, 0U);
}

TEST_P(EngineExactness, SwappedAndBroughtBack) {
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 10; ++i) {
    requests.push_back(Ask(static_cast<int32_t>(i % 3), 40, 52 + static_cast<int32_t>(i), i));
  }
  // Those of the families once more, when their blocks have gone to the host tier.
  for (uint64_t i = 0; i < 6; ++i) requests.push_back(Ask(static_cast<int32_t>(i % 3), 40, 50, i));
  requests[3].sequences = 3;
  const Streams alone = Alone(requests);
  EngineCore core(CoreOptions(26, 40, true));
  ExpectSameStreams(Run(core, requests, 2), alone);
  const EngineStats stats = core.stats();
  EXPECT_GT(stats.preemptions, 0U);
  EXPECT_GT(stats.kv_blocks_copied_out, 10U);
  EXPECT_GT(stats.kv_blocks_copied_in, 5U);
  EXPECT_TRUE(core.CheckIntegrity().ok());
}

INSTANTIATE_TEST_SUITE_P(Models, EngineExactness,
                         ::testing::Values(EngineCase{"gemma3", CpuActivations::kF32, DType::kF32},
                                           EngineCase{"mixed", CpuActivations::kQ8, DType::kF16},
                                           EngineCase{"mixed", CpuActivations::kQ8, DType::kI8}),
                         [](const auto& test) {
                           return test.param.name + "_" + std::string(Info(test.param.kv).name);
                         });

}  // namespace
}  // namespace polysil

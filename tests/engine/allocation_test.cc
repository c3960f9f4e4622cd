// After warm-up the engine's core allocates nothing for a step, and neither do those who carry its
// outputs: what one tick used serves the next. Also while blocks are added and published.
#include "fakes/allocation_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/engine_fixture.h"
#include "engine/engine_thread.h"
#include "engine/outbox.h"

namespace polysil {
namespace {

constexpr int32_t kSequences = 256;
constexpr int32_t kTokensPerBlock = 16;
constexpr int32_t kWarmUpTicks = 100;
constexpr int32_t kTicks = 1000;  // 62 blocks more for each sequence

EngineCoreOptions CoreOptions(int32_t steps_in_flight_max) {
  constexpr int32_t kBlocks = kSequences * 200;
  return {.sequences_max = kSequences,
          .limits = {.vocab_size = 1000,
                     .context_tokens_max = 10'000,
                     .kv_tokens_max = kBlocks * kTokensPerBlock,
                     .sequences_max = kSequences},
          .step_limits = {.tokens_max = 8192,
                          .sequences_max = kSequences,
                          .steps_in_flight_max = steps_in_flight_max},
          .kv = {.blocks = kBlocks, .tokens_per_block = kTokensPerBlock}};
}

// As an executor does that gives the step back.
StepResult Answer(ScheduledStep step) {
  StepResult result{
      .step_id = step.step_id, .sequences = std::move(step.results_memory), .duration_ns = 1};
  for (const ScheduledSequence& row : step.sequences) {
    result.sequences.push_back({.id = row.id});
    if (row.sample) result.sequences.back().token = static_cast<TokenId>(row.id.value);
  }
  result.step = std::move(step);
  return result;
}

// A driver that uses its inputs again.
class Decodes final {
 public:
  explicit Decodes(int32_t steps_in_flight_max) : core_(CoreOptions(steps_in_flight_max)) {
    for (int32_t i = 0; i < kSequences; ++i) {
      Request request{.id = RequestId{static_cast<uint64_t>(i) + 1},
                      .sampling = {.tokens_max = 8000}};
      // Lengths apart, so that some sequence needs a block in every step.
      request.prompt.resize(static_cast<size_t>(40 + i % kTokensPerBlock));
      std::iota(request.prompt.begin(), request.prompt.end(), i);
      inputs_.submitted.push_back({std::make_shared<const Request>(std::move(request)), 0});
    }
    Tick();
  }

  // The oldest step comes back.
  void Advance() {
    inputs_.results.push_back(Answer(std::move(in_flight_.front())));
    in_flight_.erase(in_flight_.begin());
    Tick();
  }

  const EngineCore& core() const { return core_; }
  size_t outputs() const { return outputs_; }  // of the last tick
  int64_t blocks_new() const { return blocks_new_; }

 private:
  void Tick() {
    EngineActions& actions = core_.Tick(++now_ns_, inputs_);
    outputs_ = actions.outputs.size();
    for (ScheduledStep& step : actions.steps) {
      blocks_new_ += std::ssize(step.blocks_new);
      in_flight_.push_back(std::move(step));
    }
  }

  EngineCore core_;
  EngineInputs inputs_;
  std::vector<ScheduledStep> in_flight_;
  int64_t now_ns_ = 0;
  size_t outputs_ = 0;
  int64_t blocks_new_ = 0;
};

TEST(Allocations, AreCounted) {
  EXPECT_EQ(CountAllocations([] {}), 0);
  std::vector<std::vector<int>> vectors;
  EXPECT_EQ(CountAllocations([&] { vectors.resize(3, std::vector<int>(10)); }), 5);
}

TEST(Allocations, NoneInAStepOfDecodes) {
  for (const int32_t steps_in_flight_max : {1, 2}) {
    Decodes decodes(steps_in_flight_max);
    for (int32_t i = 0; i < kWarmUpTicks; ++i) decodes.Advance();
    const int64_t blocks_before = decodes.blocks_new();
    const int64_t allocations = CountAllocations([&] {
      for (int32_t i = 0; i < kTicks; ++i) decodes.Advance();
    });
    EXPECT_EQ(allocations, 0) << steps_in_flight_max << " in flight";
    EXPECT_EQ(decodes.outputs(), size_t{kSequences}) << "each tick brings each a token";
    EXPECT_GT(decodes.blocks_new() - blocks_before, kSequences * (kTicks / kTokensPerBlock - 2));
    EXPECT_GT(decodes.core().stats().kv_blocks_used, kSequences * (kTicks / kTokensPerBlock));
  }
}

TEST(Allocations, NoneInTheGaugesOfATick) {
  const Decodes decodes(1);
  int64_t running = 0;
  EXPECT_EQ(CountAllocations([&] { running = decodes.core().stats().requests_running; }), 0);
  EXPECT_GT(running, 0);
}

class SilentSink final : public OutputSink {
 public:
  void OnOutput(SequenceOutput) override {}
};

TEST(Allocations, NoneOnTheWayToTheSinks) {
  Outbox outbox;
  for (int32_t i = 0; i < kSequences; ++i) {
    outbox.Open(RequestId{static_cast<uint64_t>(i)}, 1, std::make_shared<SilentSink>());
  }
  std::vector<SequenceOutput> outputs;
  outputs.reserve(kSequences);
  int64_t taken = 0;
  const auto round = [&] {
    for (int32_t i = 0; i < kSequences; ++i) {
      outputs.push_back({.request = RequestId{static_cast<uint64_t>(i)}, .tokens = {{.id = 7}}});
    }
    outbox.Put(outputs);
    outputs.clear();
    for (int32_t i = 0; i < kSequences; ++i) {
      taken += outbox.Take()->output.tokens.at(0).id;
    }
  };
  round();
  round();
  EXPECT_EQ(CountAllocations([&] {
              for (int32_t i = 0; i < 100; ++i) round();
            }),
            0);
  EXPECT_EQ(taken, 102 * kSequences * 7);
}

// Counts what is delivered.
class CountingSink final : public OutputSink {
 public:
  void OnOutput(SequenceOutput output) override {
    std::lock_guard lock(mutex_);
    tokens_ += static_cast<int64_t>(output.tokens.size());
    changed_.notify_all();
  }
  void WaitForTokens(int64_t tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_ >= tokens; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t tokens_ = 0;
};

// Answers at once, when all that could be delivered before is, and notes what the engine thread
// has allocated so far.
class NotingExecutor final : public Executor {
 public:
  NotingExecutor(CountingSink& sink, std::latch& submitted, std::vector<int64_t>& allocations)
      : sink_(sink), submitted_(submitted), allocations_(allocations) {}

  const StepLimits& limits() const override { return limits_; }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return 1000; }
  const NumericClass& numeric_class() const override { return numeric_class_; }
  void Submit(ScheduledStep step) override {
    submitted_.wait();
    sink_.WaitForTokens(tokens_put_);
    allocations_.push_back(allocations_of_thread);
    // What the last result brought goes to the sinks after this call.
    tokens_put_ += std::exchange(tokens_last_, 0);
    result_ = Answer(std::move(step));
    tokens_last_ = std::ranges::count_if(
        result_->sequences, [](const SequenceResult& row) { return row.token.has_value(); });
    notify_();
  }
  std::optional<StepResult> Poll() override { return std::exchange(result_, std::nullopt); }
  void SetNotify(std::function<void()> notify) override { notify_ = std::move(notify); }
  void SetHeartbeat(std::function<void()>) override {}

 private:
  CountingSink& sink_;
  std::latch& submitted_;
  std::vector<int64_t>& allocations_;
  const StepLimits limits_;
  const KvLayout layout_{.layers = 1, .kv_heads = 1, .head_size = 1, .tokens_per_block = 16};
  const NumericClass numeric_class_{"noting"};
  std::function<void()> notify_;
  std::optional<StepResult> result_;
  int64_t tokens_put_ = 0;
  int64_t tokens_last_ = 0;
};

TEST(Allocations, NoneOnTheEngineThread) {
  constexpr int32_t kRequests = 16;
  constexpr int32_t kTokens = 400;
  const auto sink = std::make_shared<CountingSink>();
  std::latch submitted(1);
  std::vector<int64_t> allocations;
  allocations.reserve(2 * kTokens);
  ManualClock clock;
  auto engine =
      EngineThread::Create({}, {.vocab_size = 1000, .context_tokens_max = 1000},
                           std::make_unique<NotingExecutor>(*sink, submitted, allocations), clock);
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (int32_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(
        (*engine)->Submit({.prompt = {i, 2, 3}, .sampling = {.tokens_max = kTokens}}, sink).ok());
  }
  submitted.count_down();
  ASSERT_TRUE((*engine)->WaitIdle(kLong));
  // The first step may have been built before all came.
  ASSERT_GE(allocations.size(), size_t{kTokens});
  EXPECT_EQ(allocations[kTokens - 10], allocations[100]);
  EXPECT_GT(allocations[100], allocations[0]);
}

}  // namespace
}  // namespace polysil

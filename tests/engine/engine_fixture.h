// What the tests of EngineThread share: a clock set by hand, sinks that keep or hold what comes, an
// engine over a fake executor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_thread.h"
#include "fakes/fake_executor.h"

namespace polysil {

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kLong = 60 * kSecond;  // a bound for a test that hangs

class ManualClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_{kSecond};
};

// Keeps all that comes, and lets a test wait for it.
class Collector final : public OutputSink {
 public:
  explicit Collector(int32_t sequences = 1) : streams_(static_cast<size_t>(sequences)) {}

  void OnOutput(SequenceOutput output) override {
    std::lock_guard lock(mutex_);
    Stream& stream = streams_.at(static_cast<size_t>(output.sequence_index));
    EXPECT_FALSE(stream.finish.has_value()) << "goes on after its end";
    for (const OutputToken& token : output.tokens) stream.tokens.push_back(token.id);
    ++outputs_;
    stream.finish = output.finish;
    stream.status = output.status;
    changed_.notify_all();
  }
  void WaitForTokens(size_t tokens) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return streams_[0].tokens.size() >= tokens; });
  }
  void WaitForEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::ranges::all_of(streams_, [](const Stream& s) { return s.finish.has_value(); });
    });
  }
  std::vector<TokenId> tokens(size_t index = 0) const {
    std::lock_guard lock(mutex_);
    return streams_[index].tokens;
  }
  std::optional<FinishReason> finish(size_t index = 0) const {
    std::lock_guard lock(mutex_);
    return streams_[index].finish;
  }
  Status status() const {
    std::lock_guard lock(mutex_);
    return streams_[0].status;
  }
  int32_t outputs() const {
    std::lock_guard lock(mutex_);
    return outputs_;
  }

 private:
  struct Stream {
    std::vector<TokenId> tokens;
    std::optional<FinishReason> finish;
    Status status;
  };
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stream> streams_;
  int32_t outputs_ = 0;
};

// A sink that does not come back until it is let go.
class StuckSink final : public OutputSink {
 public:
  void OnOutput(SequenceOutput output) override {
    tokens += output.tokens.size();
    ++outputs;
    inside.count_down();
    let_go.wait();
  }
  std::latch inside{1};
  std::latch let_go{1};
  std::atomic<size_t> tokens{0};
  std::atomic<int32_t> outputs{0};
};

// Spins: for what no event tells.
template <typename Condition>
void WaitUntil(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

inline FakeDeviceOptions FakeOptions() {
  return {.blocks = 64, .tokens_per_block = 4};
}
inline constexpr ModelLimits kModel = {.vocab_size = 1000, .context_tokens_max = 200};

inline Request Prompt(int32_t tokens, int32_t tokens_max, uint64_t seed = 0) {
  Request request{.sampling = {.seed = seed, .tokens_max = tokens_max}};
  request.prompt.resize(static_cast<size_t>(tokens));
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(seed % 3));
  return request;
}

struct Parts {
  explicit Parts(EngineOptions options = {}, bool manual = false,
                 FakeDeviceOptions device = FakeOptions()) {
    auto owned = std::make_unique<FakeExecutor>(std::move(device), manual);
    executor = owned.get();
    auto created = EngineThread::Create(options, kModel, std::move(owned), clock);
    EXPECT_TRUE(created.ok()) << Message(created.status());
    engine = *std::move(created);
    WaitUntil([this] { return engine->Readiness().ready; });
  }
  std::shared_ptr<Collector> Submit(Request request) {
    auto sink = std::make_shared<Collector>(request.sequences);
    const StatusOr<RequestId> id = engine->Submit(std::move(request), sink);
    EXPECT_TRUE(id.ok()) << Message(id.status());
    if (id.ok()) last = *id;
    return sink;
  }
  void ExpectNothingLeft() {
    ASSERT_TRUE(engine->WaitIdle(kLong));
    WaitUntil([this] { return engine->Stats().kv_blocks_used == 0; });
    const EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.requests_running, 0);
    EXPECT_EQ(stats.requests_waiting, 0);
    EXPECT_EQ(executor->violation(), "");
  }

  ManualClock clock;
  std::unique_ptr<EngineThread> engine;
  FakeExecutor* executor = nullptr;
  RequestId last;
};

}  // namespace polysil

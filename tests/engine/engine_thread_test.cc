#include "engine/engine_thread.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "fakes/fake_executor.h"

namespace polysil {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLong = 60 * kSecond;  // a bound for a test that hangs

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

FakeDeviceOptions Device() {
  return {.blocks = 64, .tokens_per_block = 4};
}
constexpr ModelLimits kModel = {.vocab_size = 1000, .context_tokens_max = 200};

Request Prompt(int32_t tokens, int32_t tokens_max, uint64_t seed = 0) {
  Request request{.sampling = {.seed = seed, .tokens_max = tokens_max}};
  request.prompt.resize(static_cast<size_t>(tokens));
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<TokenId>(seed % 3));
  return request;
}

struct Parts {
  explicit Parts(EngineOptions options = {}, bool manual = false,
                 FakeDeviceOptions device = Device()) {
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

TEST(EngineThread, StreamsTheTokensOfARequest) {
  Parts parts;
  const Request request = Prompt(10, 20, 7);
  const auto sink = parts.Submit(request);
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kLength);
  EXPECT_EQ(sink->tokens(), SoloTokens(request, 0, 1000, 200));
  EXPECT_EQ(parts.engine->info().limits.kv_tokens_max, 256);
  EXPECT_EQ(parts.engine->info().numeric_class, "fake");
  parts.ExpectNothingLeft();
}

TEST(EngineThread, CreateRefusesWhatContradictsItself) {
  const ManualClock clock;
  const auto create = [&](EngineOptions options, ModelLimits model, FakeDeviceOptions device) {
    return EngineThread::Create(options, model, std::make_unique<FakeExecutor>(device), clock)
        .status()
        .code();
  };
  EXPECT_EQ(create({}, kModel, Device()), StatusCode::kOk);
  EXPECT_EQ(create({.sequences_max = 0}, kModel, Device()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.queue_max = -1}, kModel, Device()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.queue_max = INT32_MAX}, kModel, Device()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.stall_ns = 0}, kModel, Device()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, {}, Device()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, kModel, {.blocks = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, kModel, {.tokens_per_block = 2000}), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, kModel, {.limits = {.tokens_max = 0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(EngineThread::Create({}, kModel, nullptr, clock).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(EngineThread, ManyClientsAtOnceGetTheirOwnTokens) {
  for (const int32_t steps_in_flight : {1, 2}) {
    FakeDeviceOptions device = Device();
    device.limits.steps_in_flight_max = steps_in_flight;
    device.limits.tokens_max = 32;
    Parts parts({.sequences_max = 8}, false, device);
    std::vector<std::thread> clients;
    for (uint64_t client = 0; client < 8; ++client) {
      clients.emplace_back([&parts, client] {
        for (uint64_t i = 0; i < 12; ++i) {
          Request request =
              Prompt(static_cast<int32_t>(5 + (client + i) % 30), 25, client * 100 + i);
          request.sequences = i % 4 == 0 ? 3 : 1;
          auto sink = std::make_shared<Collector>(request.sequences);
          ASSERT_TRUE(parts.engine->Submit(request, sink).ok());
          sink->WaitForEnd();
          for (int32_t index = 0; index < request.sequences; ++index) {
            EXPECT_EQ(sink->tokens(static_cast<size_t>(index)),
                      SoloTokens(request, index, 1000, 200));
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    parts.ExpectNothingLeft();
    EXPECT_EQ(parts.engine->Stats().requests_length, 96U);
  }
}

// CAN-05 and the 200 disconnects of the issue: nothing leaks.
TEST(EngineThread, TwoHundredDisconnectsLeaveNoBlockInUse) {
  FakeDeviceOptions device = Device();
  device.limits.tokens_max = 16;
  Parts parts({.sequences_max = 6, .queue_max = 400}, false, device);
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&parts, client] {
      std::mt19937_64 random(client);
      for (uint64_t i = 0; i < 50; ++i) {
        auto sink = std::make_shared<Collector>();
        const auto id = parts.engine->Submit(
            Prompt(static_cast<int32_t>(1 + random() % 60), 100, client * 100 + i), sink);
        ASSERT_TRUE(id.ok());
        const size_t tokens = random() % 5;
        if (tokens > 0) sink->WaitForTokens(tokens);
        parts.engine->Cancel(*id);
        parts.engine->Cancel(*id);
        sink->WaitForEnd();
        EXPECT_EQ(sink->finish(), FinishReason::kCancelled);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  parts.ExpectNothingLeft();
  EXPECT_EQ(parts.engine->Stats().requests_cancelled, 200U);
  const auto canary = parts.Submit(Prompt(10, 5, 3));
  canary->WaitForEnd();
  EXPECT_EQ(canary->tokens(), SoloTokens(Prompt(10, 5, 3), 0, 1000, 200));
}

// CAN-06: what a client calls its request is not what the engine calls it.
TEST(EngineThread, RequestsWithTheSameIdAreTwo) {
  Parts parts;
  Request quick = Prompt(4, 2, 1);
  Request lengthy = Prompt(9, 40, 2);
  quick.id = lengthy.id = RequestId{1};
  const auto first = parts.Submit(quick);
  const RequestId first_id = parts.last;
  const auto second = parts.Submit(lengthy);
  EXPECT_NE(first_id, parts.last);
  first->WaitForEnd();
  second->WaitForEnd();
  EXPECT_EQ(first->tokens(), SoloTokens(quick, 0, 1000, 200));
  EXPECT_EQ(second->tokens(), SoloTokens(lengthy, 0, 1000, 200));
  parts.ExpectNothingLeft();
}

// SCH-01.
TEST(EngineThread, RefusesAtTheDoorWhatIsTooMuch) {
  Parts parts({.sequences_max = 1, .queue_max = 2}, true);
  std::vector<std::shared_ptr<Collector>> accepted;
  for (int32_t i = 0; i < 3; ++i) accepted.push_back(parts.Submit(Prompt(4, 2)));
  for (int32_t i = 0; i < 17; ++i) {
    const auto refused = parts.engine->Submit(Prompt(4, 2), std::make_shared<Collector>());
    EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(Message(refused.status()),
              "3 sequences run or wait and 1 more were asked for, 3 are the most, try later");
  }
  EXPECT_EQ(parts.engine->Stats().requests_refused, 17U);
  for (int32_t i = 0; i < 6; ++i) parts.executor->RunOne();
  for (const auto& sink : accepted) sink->WaitForEnd();
  parts.ExpectNothingLeft();
  const auto again = parts.Submit(Prompt(4, 1));
  parts.executor->RunOne();
  again->WaitForEnd();
  EXPECT_EQ(again->finish(), FinishReason::kLength);
}

TEST(EngineThread, RefusesAtTheDoorWhatMakesNoSense) {
  Parts parts;
  Request request = Prompt(4, 2);
  request.prompt[2] = 1000;
  const auto refused = parts.engine->Submit(request, std::make_shared<Collector>());
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(refused.status()), "prompt token 2 is 1000, the vocabulary has 1000");
  EXPECT_EQ(parts.engine->Submit(Prompt(201, 1), std::make_shared<Collector>()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(parts.engine->Stats().requests_refused, 2U);
  parts.ExpectNothingLeft();
}

TEST(EngineThread, AStopStringEndsOneSequence) {
  Parts parts({}, true);
  Request request = Prompt(4, 50);
  request.sequences = 2;
  const auto sink = parts.Submit(request);
  parts.executor->RunOne();
  sink->WaitForTokens(1);
  parts.engine->Stop(parts.last, 0);
  parts.engine->Stop(parts.last, 0);
  parts.engine->Stop(parts.last, 9);
  WaitUntil([&] { return sink->finish(0).has_value(); });
  EXPECT_EQ(sink->finish(0), FinishReason::kStop);
  EXPECT_EQ(sink->finish(1), std::nullopt);
  parts.engine->Cancel(parts.last);
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(1), FinishReason::kCancelled);
  parts.executor->RunOne();
  parts.ExpectNothingLeft();
}

TEST(EngineThread, CancelDoesNotWaitForTheStepInFlight) {
  Parts parts({}, true);
  const auto sink = parts.Submit(Prompt(8, 50));
  parts.executor->WaitForStep();
  parts.engine->Cancel(parts.last);
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kCancelled);
  EXPECT_TRUE(parts.engine->WaitIdle(kLong));
  EXPECT_EQ(parts.engine->Stats().kv_blocks_used, 2) << "the step may still write them";
  parts.executor->RunOne();
  parts.ExpectNothingLeft();
}

// CAN-10. A deadline wakes an engine to which nothing else happens.
TEST(EngineThread, DeadlineFallsWithoutAnyOtherEvent) {
  const SteadyClock clock;
  auto owned = std::make_unique<FakeExecutor>(Device(), true);
  FakeExecutor* executor = owned.get();
  auto engine = *EngineThread::Create({}, kModel, std::move(owned), clock);
  Request request = Prompt(4, 50);
  request.deadline_ns = clock.NowNs() + kSecond / 50;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kDeadline);
  EXPECT_GE(clock.NowNs(), request.deadline_ns);
  executor->RunOne();
}

TEST(EngineThread, DrainLetsRunningFinishAndRefusesNew) {
  Parts parts({.sequences_max = 1}, true);
  const auto running = parts.Submit(Prompt(4, 2));
  const auto waiting = parts.Submit(Prompt(5, 1));
  parts.engine->Drain(parts.clock.NowNs() + kSecond);
  EXPECT_FALSE(parts.engine->Readiness().ready);
  EXPECT_EQ(parts.engine->Readiness().reason, "the engine is shutting down");
  const auto refused = parts.engine->Submit(Prompt(4, 2), std::make_shared<Collector>());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(parts.engine->WaitIdle(0));
  for (int32_t i = 0; i < 3; ++i) parts.executor->RunOne();
  ASSERT_TRUE(parts.engine->WaitIdle(kLong));
  EXPECT_EQ(running->finish(), FinishReason::kLength);
  EXPECT_EQ(waiting->finish(), FinishReason::kLength);
  parts.ExpectNothingLeft();
}

TEST(EngineThread, SecondDrainEndsNow) {
  Parts parts({}, true);
  const auto sink = parts.Submit(Prompt(4, 50));
  parts.executor->WaitForStep();
  parts.engine->Drain(parts.clock.NowNs() + 3600 * kSecond);
  EXPECT_FALSE(parts.engine->WaitIdle(0));
  parts.engine->Drain(0);
  ASSERT_TRUE(parts.engine->WaitIdle(kLong));
  EXPECT_EQ(sink->finish(), FinishReason::kCancelled);
}

TEST(EngineThread, DestructionEndsEveryStreamOnce) {
  std::vector<std::shared_ptr<Collector>> sinks;
  {
    Parts parts({.sequences_max = 2}, true);
    for (int32_t i = 0; i < 5; ++i) {
      Request request = Prompt(6, 50);
      request.sequences = 2;
      sinks.push_back(parts.Submit(request));
    }
    parts.executor->RunOne();
    parts.executor->WaitForStep();
  }
  for (const auto& sink : sinks) {
    for (size_t index = 0; index < 2; ++index) {
      ASSERT_TRUE(sink->finish(index).has_value());
      EXPECT_EQ(*sink->finish(index), FinishReason::kCancelled);
    }
  }
}

// OPS-03.
TEST(EngineThread, IsNotReadyWhileAStepDoesNotComeBack) {
  Parts parts({.stall_ns = 2 * kSecond}, true);
  const auto sink = parts.Submit(Prompt(4, 2));
  parts.executor->WaitForStep();
  parts.clock.Advance(2 * kSecond);
  EXPECT_TRUE(parts.engine->Readiness().ready);
  parts.clock.Advance(1);
  EXPECT_FALSE(parts.engine->Readiness().ready);
  EXPECT_NE(parts.engine->Readiness().reason.find("has not returned a step for more than 2 s"),
            std::string::npos);
  const auto refused = parts.engine->Submit(Prompt(4, 2), std::make_shared<Collector>());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  // It comes back after all.
  parts.executor->RunOne();
  sink->WaitForTokens(1);
  WaitUntil([&] { return parts.engine->Readiness().ready; });
  parts.executor->RunOne();
  sink->WaitForEnd();
  parts.ExpectNothingLeft();
  parts.clock.Advance(1000 * kSecond);
  // Idle is not stalled, as soon as the thread is.
  WaitUntil([&] { return parts.engine->Readiness().ready; });
}

// An executor whose Submit blocks, and with it the engine thread.
class BlockingExecutor final : public Executor {
 public:
  const StepLimits& limits() const override { return limits_; }
  const KvLayout& kv_layout() const override { return layout_; }
  int32_t kv_blocks() const override { return 16; }
  const NumericClass& numeric_class() const override { return numeric_class_; }
  void Submit(ScheduledStep) override {
    inside.count_down();
    let_go.wait();
  }
  std::optional<StepResult> Poll() override { return std::nullopt; }
  void SetNotify(std::function<void()>) override {}

  std::latch inside{1};
  std::latch let_go{1};

 private:
  StepLimits limits_;
  KvLayout layout_;
  NumericClass numeric_class_{"blocking"};
};

TEST(EngineThread, StuckEngineThreadShows) {
  ManualClock clock;
  auto owned = std::make_unique<BlockingExecutor>();
  BlockingExecutor* executor = owned.get();
  auto engine = *EngineThread::Create({.stall_ns = kSecond}, kModel, std::move(owned), clock);
  auto sink = std::make_shared<Collector>();
  const StatusOr<RequestId> id = engine->Submit(Prompt(4, 2), sink);
  ASSERT_TRUE(id.ok());
  executor->inside.wait();
  // All of these answer although the thread is stuck.
  engine->Cancel(*id);
  EXPECT_TRUE(engine->Readiness().ready);
  clock.Advance(kSecond + 1);
  EXPECT_FALSE(engine->Readiness().ready);
  EXPECT_NE(engine->Readiness().reason, "");
  EXPECT_EQ(engine->Stats().steps, 0U);
  EXPECT_GE(engine->RetryAfterSeconds(), 1);
  EXPECT_EQ(engine->Submit(Prompt(4, 2), sink).status().code(), StatusCode::kUnavailable);
  executor->let_go.count_down();
  sink->WaitForEnd();
}

TEST(EngineThread, IsNotReadyWhileStepsFail) {
  Parts parts;
  parts.executor->FailSteps(Unavailable("the device is gone"));
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(parts.engine->Readiness().ready);
    const auto sink = parts.Submit(Prompt(4, 2));
    sink->WaitForEnd();
    EXPECT_EQ(sink->finish(), FinishReason::kError);
    EXPECT_EQ(Message(sink->status()), "the device is gone");
    ASSERT_TRUE(parts.engine->WaitIdle(kLong));
  }
  EXPECT_FALSE(parts.engine->Readiness().ready);
  EXPECT_EQ(parts.engine->Readiness().reason, "the last 3 steps have failed");
  // One request at a time may try.
  parts.executor->FailSteps(OkStatus());
  const auto sink = parts.Submit(Prompt(4, 2));
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kLength);
  EXPECT_TRUE(parts.engine->Readiness().ready);
}

TEST(EngineThread, ASlowSinkHoldsUpNeitherEngineNorMemory) {
  Parts parts({.stall_ns = kSecond});
  auto stuck = std::make_shared<StuckSink>();
  ASSERT_TRUE(parts.engine->Submit(Prompt(4, 100), stuck).ok());
  stuck->inside.wait();
  // The engine goes on to the end of this and of another request.
  const auto other = parts.Submit(Prompt(7, 30, 5));
  WaitUntil([&] { return parts.engine->Stats().requests_length == 2; });
  EXPECT_EQ(parts.engine->Stats().generation_tokens, 130U);
  EXPECT_EQ(other->outputs(), 0);
  parts.clock.Advance(kSecond + 1);
  EXPECT_NE(parts.engine->Readiness().reason.find("sink has blocked"), std::string::npos);
  stuck->let_go.count_down();
  other->WaitForEnd();
  parts.ExpectNothingLeft();
  // What had piled up came as one.
  EXPECT_EQ(stuck->outputs, 2);
  EXPECT_EQ(stuck->tokens, 100U);
  EXPECT_EQ(other->outputs(), 1);
  EXPECT_EQ(other->tokens(), SoloTokens(Prompt(7, 30, 5), 0, 1000, 200));
}

TEST(EngineThread, RetryAfterFollowsTheServiceRate) {
  Parts parts({.sequences_max = 1, .queue_max = 100}, true);
  EXPECT_EQ(parts.engine->RetryAfterSeconds(), 1);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int32_t i = 0; i < 30; ++i) sinks.push_back(parts.Submit(Prompt(4, 1)));
  // One request every two seconds.
  for (size_t i = 0; i < 10; ++i) {
    parts.executor->WaitForStep();
    parts.clock.Advance(2 * kSecond);
    parts.executor->RunOne();
    sinks[i]->WaitForEnd();
  }
  // 19 wait, 0.5 a second are served.
  EXPECT_NEAR(parts.engine->RetryAfterSeconds(), 38, 6);
}

TEST(EngineThread, IdleCostsNoTime) {
  Parts parts({}, true);
  const auto sink = parts.Submit(Prompt(4, 2));
  parts.executor->WaitForStep();
  const auto cpu_ns = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * kSecond + time.tv_nsec;
  };
  const int64_t before_ns = cpu_ns();
  // The step never comes back meanwhile, so this waits the whole time.
  EXPECT_FALSE(parts.engine->WaitIdle(kSecond / 2));
  EXPECT_LT(cpu_ns() - before_ns, kSecond / 20);
}

}  // namespace
}  // namespace polysil

#include "engine/engine_thread.h"

#include <gtest/gtest.h>
#include <time.h>

#include <random>
#include <thread>

#include "engine/engine_fixture.h"

namespace polysil {
namespace {

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
  EXPECT_EQ(create({}, kModel, FakeOptions()), StatusCode::kOk);
  EXPECT_EQ(create({.sequences_max = 0}, kModel, FakeOptions()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.queue_max = -1}, kModel, FakeOptions()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.queue_max = INT32_MAX}, kModel, FakeOptions()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({.stall_ns = 0}, kModel, FakeOptions()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, {}, FakeOptions()), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, kModel, {.blocks = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, kModel, {.tokens_per_block = 2000}), StatusCode::kInvalidArgument);
  EXPECT_EQ(create({}, kModel, {.limits = {.tokens_max = 0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(EngineThread::Create({}, kModel, nullptr, clock).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(EngineThread, ManyClientsAtOnceGetTheirOwnTokens) {
  for (const int32_t steps_in_flight : {1, 2}) {
    FakeDeviceOptions device = FakeOptions();
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
  FakeDeviceOptions device = FakeOptions();
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
        // On a busy machine a short one may have come to its end before.
        EXPECT_TRUE(sink->finish() == FinishReason::kCancelled ||
                    sink->finish() == FinishReason::kLength);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  parts.ExpectNothingLeft();
  const EngineStats stats = parts.engine->Stats();
  EXPECT_EQ(stats.requests_cancelled + stats.requests_length, 200U);
  EXPECT_GT(stats.requests_cancelled, 0U);
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

TEST(EngineThread, ATenantLeavesRoomAtTheDoor) {
  Parts parts({.sequences_max = 1, .queue_max = 7, .tenants_leave_room = true}, true);
  const auto submit = [&](const std::string& tenant, std::shared_ptr<Collector> sink) {
    Request request = Prompt(4, 1);
    request.tenant = tenant;
    return parts.engine->Submit(std::move(request), std::move(sink)).status().code();
  };
  std::vector<std::shared_ptr<Collector>> accepted;
  const auto accept = [&](const std::string& tenant) {
    accepted.push_back(std::make_shared<Collector>());
    EXPECT_EQ(submit(tenant, accepted.back()), StatusCode::kOk);
  };
  for (int32_t i = 0; i < 6; ++i) accept("a");
  EXPECT_EQ(submit("a", std::make_shared<Collector>()), StatusCode::kResourceExhausted);
  accept("b");
  for (size_t i = 0; i < accepted.size(); ++i) parts.executor->RunOne();
  for (const auto& sink : accepted) sink->WaitForEnd();
  parts.ExpectNothingLeft();
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
  auto engine =
      *EngineThread::Create({}, kModel, std::make_unique<FakeExecutor>(FakeOptions(), true), clock);
  Request request = Prompt(4, 50);
  request.deadline_ns = clock.NowNs() + kSecond / 50;
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_EQ(sink->finish(), FinishReason::kDeadline);
  EXPECT_GE(clock.NowNs(), request.deadline_ns);
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

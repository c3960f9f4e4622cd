// EngineCore under random load, limits and faults: many seeds, everything checked after each tick.
#include <gtest/gtest.h>

#include <random>

#include "engine/core_harness.h"

namespace polysil {
namespace {

// Names of blocks that collide all the time.
BlockHash ConstantDigest(std::span<const std::byte>) {
  return BlockHash{};
}
BlockHash WeakDigest(std::span<const std::byte> bytes) {
  BlockHash hash;
  hash.bytes[0] = static_cast<uint8_t>(bytes[bytes.size() - 4]) & 3U;
  return hash;
}

class RandomRun final {
 public:
  explicit RandomRun(uint64_t seed) : random_(seed) {
    device_.tokens_per_block = Pick({1, 2, 3, 4, 8});
    device_.blocks = Between(4, 40);
    device_.vocab_size = Pick({3, 17, 50});
    StepLimits& limits = device_.limits;
    limits.tokens_max = Pick({2, 3, 5, 8, 16, 64});
    limits.sequences_max = Between(1, 8);
    limits.prefill_sequences_max = Between(1, 4);
    limits.mixes_prefill_and_decode = Chance(0.7);
    limits.steps_in_flight_max = Pick({1, 1, 2, 3});
    if (Chance(0.3)) limits.token_buckets = {1, 2, 4, 8, 32};
    if (Chance(0.3)) limits.sequence_buckets = {1, 4};
    limits.kv_host_blocks = Pick({0, 0, 1, 5, 40});
    limits.block_copy_rows = Pick({0.1, 0.1, 1.5});
    device_.cost = {.step_ns = Pick({0, 1000}), .row_ns = Pick({0, 100}), .position_ns = 1};
    options_.itl_target_ns = Pick({0, 0, 1, 1500, 3000});
    options_.sequences_max = Between(1, 10);
    options_.queue_max = Between(0, 12);
    if (Chance(0.2)) options_.queue_tokens_max = Between(1, 200);
    const int32_t kv_tokens = device_.blocks * device_.tokens_per_block;
    options_.limits = {.vocab_size = device_.vocab_size,
                       .context_tokens_max = Between(4, 80),
                       .kv_tokens_max = kv_tokens,
                       .sequences_max = options_.sequences_max};
    tokens_limit_ = std::min(options_.limits.context_tokens_max, kv_tokens + 1);
    options_.step_limits = limits;
    options_.kv = {
        .blocks = device_.blocks,
        .tokens_per_block = device_.tokens_per_block,
        .prefix_cache = Chance(0.85),
        .digest = Pick<DigestFunction>({&Sha256, &Sha256, &WeakDigest, &ConstantDigest})};
    fault_rate_ = Pick({0.0, 0.0, 0.02, 0.1});
    cancel_rate_ = Pick({0.0, 0.05, 0.3});
    harness_ = std::make_unique<CoreHarness>(options_, device_);
  }

  void Run(int32_t ticks) {
    for (int32_t i = 0; i < ticks && harness_->problem().empty(); ++i) {
      harness_->AdvanceTo(harness_->now_ns() + Between(0, 3));
      if (Chance(0.4)) SubmitOne();
      if (Chance(cancel_rate_)) CancelOne();
      if (Chance(cancel_rate_ / 4)) StopOne();
      // Sometimes nothing comes back for a while, sometimes everything at once.
      while (Chance(0.7) && harness_->RunOldest(Faults())) {
      }
      harness_->Tick();
    }
    ASSERT_EQ(harness_->problem(), "") << "tick of the run, " << Describe();
    if (Chance(0.2)) harness_->Drain(harness_->now_ns() + Between(0, 50));
    ASSERT_TRUE(harness_->RunToEnd(200'000)) << "not all ended, " << Describe();
    ASSERT_EQ(harness_->problem(), "") << "running to the end, " << Describe();
    CheckStreams();
    CheckCounts();
  }

  EngineStats stats() { return harness_->core().stats(); }

 private:
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double p) { return static_cast<double>(random_() >> 11) * 0x1p-53 < p; }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  std::string Describe() const {
    return fmt::format("{} blocks of {}, {} in flight", device_.blocks, device_.tokens_per_block,
                       device_.limits.steps_in_flight_max);
  }

  void SubmitOne() {
    Request request;
    // A few families of prompts, so that prefixes are shared and part at every offset.
    const int32_t family = Between(0, 2);
    const int32_t length = Between(1, std::max(1, tokens_limit_ - 1));
    const int32_t shared = Between(0, length);
    for (int32_t i = 0; i < length; ++i) {
      const int32_t token = i < shared ? family * 7 + i * 5 : Between(0, 1000);
      request.prompt.push_back(token % device_.vocab_size);
    }
    request.sequences = Chance(0.2) ? Between(1, options_.limits.sequences_max) : 1;
    request.sampling.tokens_max = Between(1, 30);
    request.sampling.tokens_min = Between(0, std::min(5, request.sampling.tokens_max));
    request.sampling.seed = random_() % 3;
    if (Chance(0.1)) request.sampling.prompt_logprobs = 0;
    if (Chance(0.5)) request.end_token_ids = {device_.vocab_size - 1};
    if (Chance(0.1)) request.deadline_ns = harness_->now_ns() + Between(1, 60);
    request.priority = Chance(0.2) ? Between(-1, 1) : 0;
    request.cache_salt = Pick<const char*>({"", "", "a", "b"});
    if (Chance(0.2)) request.retention = {{Between(1, 90), Between(1, 40)}, {Between(1, 20), 10}};
    request.tenant = Pick<const char*>({"", "a", "b", "c"});
    // Some that must be refused.
    if (Chance(0.03)) request.prompt.resize(static_cast<size_t>(tokens_limit_) + 1);
    if (Chance(0.02)) request.prompt.back() = device_.vocab_size;
    ids_.push_back(harness_->Submit(std::move(request)));
  }

  // Also ones that have ended, twice, or that never were.
  void CancelOne() {
    if (Chance(0.1)) harness_->Cancel(RequestId{1'000'000});
    if (!ids_.empty()) harness_->Cancel(ids_[random_() % ids_.size()]);
    if (!ids_.empty() && Chance(0.5)) harness_->Cancel(ids_.back());
  }
  void StopOne() {
    if (!ids_.empty()) harness_->Stop(ids_[random_() % ids_.size()], Between(-1, 3));
  }

  FakeFaults Faults() {
    FakeFaults faults;
    if (Chance(fault_rate_ / 4)) faults.step = Internal("the device said no");
    for (const ScheduledSequence& row : harness_->in_flight().empty()
                                            ? std::vector<ScheduledSequence>{}
                                            : harness_->in_flight().front().sequences) {
      if (Chance(fault_rate_ / 4)) faults.rows[row.id] = Internal("not a number");
    }
    return faults;
  }

  // In order, and the same as alone.
  void CheckStreams() {
    for (const auto& [id, streams] : harness_->streams()) {
      const Request& request = harness_->request(id);
      const bool valid = Validate(request, options_.limits).ok();
      for (size_t index = 0; index < streams.size(); ++index) {
        const SeenStream& seen = streams[index];
        ASSERT_TRUE(seen.finish.has_value()) << "request " << id.value << " has no end";
        if (!valid) {
          ASSERT_EQ(*seen.finish, FinishReason::kError);
          ASSERT_TRUE(seen.tokens.empty());
          continue;
        }
        const std::vector<TokenId> solo =
            SoloTokens(request, static_cast<int32_t>(index), device_.vocab_size, tokens_limit_);
        ASSERT_LE(seen.tokens.size(), solo.size());
        ASSERT_TRUE(std::equal(seen.tokens.begin(), seen.tokens.end(), solo.begin()))
            << "request " << id.value << " differs from alone, " << Describe();
        if (*seen.finish == FinishReason::kLength) {
          ASSERT_EQ(seen.tokens.size(), solo.size());
        }
        if (request.sampling.prompt_logprobs && !seen.tokens.empty()) {
          ASSERT_EQ(seen.prompt_logprobs.size(), request.prompt.size() - 1);
          for (size_t p = 1; p < request.prompt.size(); ++p) {
            ASSERT_EQ(seen.prompt_logprobs[p - 1].chosen.id, request.prompt[p]);
          }
        }
        // What may be found in the cache: full blocks, never the last token.
        const int32_t size = device_.tokens_per_block;
        ASSERT_LE(seen.prompt_tokens_cached,
                  (static_cast<int32_t>(request.prompt.size()) - 1) / size * size);
      }
    }
  }

  // Each request is counted once.
  void CheckCounts() {
    const EngineStats stats = harness_->core().stats();
    const uint64_t ended = stats.requests_stop + stats.requests_length + stats.requests_cancelled +
                           stats.requests_deadline + stats.requests_error;
    ASSERT_EQ(ended + stats.requests_refused, ids_.size());
    uint64_t durations = 0;
    for (const uint64_t count : stats.request_duration_s.counts) durations += count;
    ASSERT_EQ(durations, ended);
    ASSERT_EQ(stats.requests_running + stats.requests_waiting, 0);
    ASSERT_EQ(stats.kv_blocks_used, 0);
    ASSERT_LE(stats.prefix_cache_hit_tokens, stats.prefix_cache_query_tokens);
  }

  std::mt19937_64 random_;
  FakeDeviceOptions device_;
  EngineCoreOptions options_;
  int32_t tokens_limit_ = 0;
  double fault_rate_ = 0.0;
  double cancel_rate_ = 0.0;
  std::unique_ptr<CoreHarness> harness_;
  std::vector<RequestId> ids_;
};

// CAN-08, SCH-03, SCH-09: whatever meets whatever, all ends, nothing leaks, tokens are as alone.
TEST(EngineCoreRandom, HoldsUnderRandomLoadAndFaults) {
  constexpr uint64_t kSeeds = 1500;
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  uint64_t copies_out = 0;
  uint64_t copies_in = 0;
  uint64_t steps = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRun run(seed);
    run.Run(150);
    if (HasFatalFailure()) return;
    preemptions += run.stats().preemptions;
    hits += run.stats().prefix_cache_hit_tokens;
    copies_out += run.stats().kv_blocks_copied_out;
    copies_in += run.stats().kv_blocks_copied_in;
    steps += run.stats().steps;
  }
  // The load is such that what is to be tested happens.
  EXPECT_GT(preemptions, kSeeds);
  EXPECT_GT(hits, 10 * kSeeds);
  EXPECT_GT(copies_out, 20 * kSeeds);
  EXPECT_GT(copies_in, kSeeds);
  EXPECT_GT(steps, 50 * kSeeds);
  RecordProperty("preemptions", std::to_string(preemptions));
  RecordProperty("hits", std::to_string(hits));
  RecordProperty("copies_out", std::to_string(copies_out));
  RecordProperty("copies_in", std::to_string(copies_in));
  RecordProperty("steps", std::to_string(steps));
}

}  // namespace
}  // namespace polysil

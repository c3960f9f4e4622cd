// The promises of docs/configuration.md about shares and turns, measured from outside over random
// workloads: what each tenant got is added up from the steps that the device was given.
#include <gtest/gtest.h>

#include <random>

#include "engine/core_harness.h"

namespace polysil {
namespace {

constexpr double kPrefillWeight = 1.0;
constexpr double kDecodeWeight = 2.0;
constexpr double kCachedWeight = 0.1;

// Tenants that always have somebody waiting, each with sizes of its own.
class Backlog final {
 public:
  // named: the engine is told whose a request is.
  Backlog(uint64_t seed, bool named) : random_(seed), named_(named) {
    FakeDeviceOptions device{.blocks = Between(20, 48), .tokens_per_block = 4, .vocab_size = 1000};
    sequences_max_ = Between(1, 6);
    device.limits = {.tokens_max = Between(8, 64), .steps_in_flight_max = Between(1, 2)};
    device.limits.mixes_prefill_and_decode = Between(0, 3) > 0;
    if (Between(0, 3) == 0) device.limits.token_buckets = {1, 2, 4, 8, 16, 32, 64};
    device.cost = {.step_ns = 1000, .row_ns = 100};
    const int32_t tenants = Between(2, 4);
    for (int32_t i = 0; i < tenants; ++i) {
      tenants_.push_back({.prompt_max = Between(1, kPromptMax), .output_max = Between(1, 16)});
    }
    EngineCoreOptions options{.sequences_max = sequences_max_,
                              .queue_max = tenants * (sequences_max_ + 2),
                              .itl_target_ns = Between(0, 2) == 0 ? 3000 : 0};
    options.limits = {.vocab_size = 1000,
                      .context_tokens_max = 200,
                      .kv_tokens_max = device.blocks * device.tokens_per_block,
                      .sequences_max = sequences_max_};
    options.step_limits = device.limits;
    options.kv = {.blocks = device.blocks, .tokens_per_block = device.tokens_per_block};
    harness_ = std::make_unique<CoreHarness>(options, device);
  }

  void Run(int32_t ticks) {
    for (int32_t i = 0; i < ticks; ++i) {
      for (size_t t = 0; t < tenants_.size(); ++t) {
        while (tenants_[t].waiting <= sequences_max_) Submit(t);
      }
      harness_->RunOldest();
      harness_->Tick();
      ASSERT_EQ(harness_->problem(), "");
      for (const ScheduledStep& step : harness_->actions().steps) Count(step);
      Compare();
    }
  }

  // How far apart any two came over any stretch of time, and how far they may.
  double gap() const {
    double gap = 0.0;
    for (const auto& [pair, range] : ranges_) gap = std::max(gap, range.second - range.first);
    return gap;
  }
  double bound() const {
    double prompt = 0.0;
    double outputs = 0.0;
    for (const Tenant& tenant : tenants_) {
      prompt = std::max(prompt, kPrefillWeight * tenant.prompt_max);
      outputs = std::max(outputs, kDecodeWeight * (tenant.output_max - 1) * sequences_max_);
    }
    return 2 * (prompt + outputs);
  }
  double least_served() const {
    return std::ranges::min_element(tenants_, {}, [](const Tenant& t) { return t.served; })->served;
  }
  uint64_t preemptions() const { return harness_->core().stats().preemptions; }
  uint64_t hits() const { return harness_->core().stats().prefix_cache_hit_tokens; }

 private:
  static constexpr int32_t kPromptMax = 60;

  struct Tenant {
    int32_t prompt_max;
    int32_t output_max;
    int32_t waiting = 0;
    double served = 0.0;
  };
  struct Counted {
    size_t tenant;
    int32_t prompt_tokens;
    int32_t tokens = 0;  // [0, tokens) are in `served`
  };

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  void Submit(size_t tenant) {
    Request request{.sampling = {.seed = random_(), .tokens_max = 1}};
    request.sampling.tokens_max = Between(1, tenants_[tenant].output_max);
    request.prompt.resize(static_cast<size_t>(Between(1, tenants_[tenant].prompt_max)));
    // Some begin alike.
    const int32_t shared = Between(0, 1) * Between(0, 30);
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      request.prompt[i] = static_cast<int32_t>(i) < shared ? 7 : Between(0, 999);
    }
    if (named_) request.tenant = std::string(1, static_cast<char>('a' + tenant));
    const int32_t prompt_tokens = static_cast<int32_t>(request.prompt.size());
    requests_.emplace(harness_->Submit(std::move(request)), Counted{tenant, prompt_tokens});
    ++tenants_[tenant].waiting;
  }

  void Count(const ScheduledStep& step) {
    for (const SequenceStart& start : step.started) {
      Counted& counted = requests_.at(start.request->id);
      --tenants_[counted.tenant].waiting;
      sequences_[start.id] = &counted;
    }
    for (const ScheduledSequence& row : step.sequences) {
      Counted& counted = *sequences_.at(row.id);
      double& served = tenants_[counted.tenant].served;
      // What the first chunk begins behind came from the cache.
      for (; counted.tokens < row.tokens_computed; ++counted.tokens) served += kCachedWeight;
      for (; counted.tokens < row.tokens_computed + row.tokens; ++counted.tokens) {
        served += counted.tokens < counted.prompt_tokens ? kPrefillWeight : kDecodeWeight;
      }
    }
  }

  void Compare() {
    for (size_t a = 0; a < tenants_.size(); ++a) {
      for (size_t b = a + 1; b < tenants_.size(); ++b) {
        const double lead = tenants_[a].served - tenants_[b].served;
        auto& range = ranges_.emplace(std::pair{a, b}, std::pair{lead, lead}).first->second;
        range.first = std::min(range.first, lead);
        range.second = std::max(range.second, lead);
      }
    }
  }

  std::mt19937_64 random_;
  const bool named_;
  int32_t sequences_max_ = 0;
  std::vector<Tenant> tenants_;
  std::unique_ptr<CoreHarness> harness_;
  std::map<RequestId, Counted> requests_;
  std::map<SequenceId, Counted*> sequences_;
  std::map<std::pair<size_t, size_t>, std::pair<double, double>> ranges_;
};

TEST(Fairness, BackloggedTenantsStayWithinTheBound) {
  constexpr uint64_t kSeeds = 150;
  double worst = 0.0;
  uint64_t preemptions = 0;
  uint64_t hits = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Backlog backlog(seed, true);
    backlog.Run(600);
    if (HasFatalFailure()) return;
    ASSERT_LE(backlog.gap(), backlog.bound());
    ASSERT_GT(backlog.least_served(), 0.0);
    worst = std::max(worst, backlog.gap() / backlog.bound());
    preemptions += backlog.preemptions();
    hits += backlog.hits();
  }
  RecordProperty("worst_share_of_bound", std::to_string(worst));
  EXPECT_GT(worst, 0.3) << "the bound says nothing";
  EXPECT_GT(preemptions, 20U);
  EXPECT_GT(hits, kSeeds);
}

// The same load in order of arrival: most runs leave the bound.
TEST(Fairness, WithoutNamesTheyDoNot) {
  constexpr uint64_t kSeeds = 40;
  uint64_t beyond = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Backlog backlog(seed, false);
    backlog.Run(600);
    if (HasFatalFailure()) return;
    beyond += backlog.gap() > backlog.bound() ? 1 : 0;
  }
  EXPECT_GT(beyond, kSeeds / 2);
}

// Names made up for each request are no way past those who keep theirs: a newcomer starts where
// the others stand. The old tenant still gets its turn among them.
TEST(Fairness, ManyNewNamesDoNotShutOutAnOldOne) {
  CoreHarness harness({.sequences_max = 1,
                       .queue_max = 64,
                       .limits = {.vocab_size = 100,
                                  .context_tokens_max = 64,
                                  .kv_tokens_max = 256,
                                  .sequences_max = 1},
                       .kv = {.blocks = 64, .tokens_per_block = 4}},
                      {.blocks = 64, .tokens_per_block = 4, .vocab_size = 100});
  const auto submit = [&](const std::string& tenant) {
    return harness.Submit(
        {.prompt = {1, 2, 3, 4}, .sampling = {.tokens_max = 2}, .tenant = tenant});
  };
  const RequestId old = submit("old");
  harness.Tick();
  int32_t names = 0;
  const RequestId second = submit("old");
  for (int32_t i = 0; i < 2000; ++i) {
    while (harness.core().stats().requests_waiting < 8) {
      submit("new" + std::to_string(++names));
      harness.Tick();
    }
    harness.RunOldest();
    harness.Tick();
    if (harness.streams().at(second)[0].finish) break;
  }
  EXPECT_EQ(harness.problem(), "");
  EXPECT_TRUE(harness.streams().at(old)[0].finish.has_value());
  EXPECT_TRUE(harness.streams().at(second)[0].finish.has_value());
  EXPECT_LT(names, 40);
}

// A large request of low priority under an endless load of higher ones, which also wants the blocks
// that it waits for. Turns: the first place in one of 17 steps that have prefill.
TEST(Turns, NoPriorityMakesAnotherWaitForEver) {
  for (const int32_t steps_in_flight : {1, 2}) {
    const StepLimits limits{.tokens_max = 16, .steps_in_flight_max = steps_in_flight};
    CoreHarness harness({.sequences_max = 4,
                         .queue_max = 16,
                         .limits = {.vocab_size = 100,
                                    .context_tokens_max = 64,
                                    .kv_tokens_max = 64,
                                    .sequences_max = 4},
                         .step_limits = limits,
                         .kv = {.blocks = 16, .tokens_per_block = 4, .prefix_cache = false}},
                        {.limits = limits, .blocks = 16, .tokens_per_block = 4, .vocab_size = 100});
    Request low{.prompt = std::vector<TokenId>(50, 9), .sampling = {.tokens_max = 3}};
    low.priority = -1;
    const RequestId id = harness.Submit(std::move(low));
    uint64_t high = 0;
    int32_t steps = 0;
    while (!harness.streams().at(id)[0].finish && steps < 5000) {
      while (harness.core().stats().requests_waiting < 4) {
        Request request{.prompt = std::vector<TokenId>(12, 7), .sampling = {.tokens_max = 6}};
        request.sampling.seed = ++high;
        harness.Submit(std::move(request));
        harness.Tick();
      }
      harness.RunOldest();
      harness.Tick();
      ++steps;
      ASSERT_EQ(harness.problem(), "");
    }
    EXPECT_TRUE(harness.streams().at(id)[0].finish.has_value());
    // Admission, four chunks and, in between, preemptions; each waits for its turn.
    EXPECT_LT(steps, 17 * 2 * 20);
    EXPECT_GT(high, 16U) << "the others went on meanwhile";
  }
}

}  // namespace
}  // namespace polysil

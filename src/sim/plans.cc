#include "sim/plans.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "sim/random_workload.h"

namespace polysil {
namespace {

// Names of blocks that collide all the time, or often.
BlockHash ConstantDigest(std::span<const std::byte> /*bytes*/) {
  return BlockHash{};
}
BlockHash WeakDigest(std::span<const std::byte> bytes) {
  BlockHash hash;
  hash.bytes[0] = static_cast<uint8_t>(bytes.back()) & 3U;
  return hash;
}

StepLimits DrawLimits(Random& random) {
  StepLimits limits;
  limits.tokens_max = random.Pick({2, 3, 5, 8, 16, 64});
  limits.sequences_max = random.Between(1, 12);
  limits.prefill_sequences_max = random.Between(1, 4);
  limits.mixes_prefill_and_decode = random.Chance(0.75);
  limits.steps_in_flight_max = random.Between(1, 2);
  if (random.Chance(0.3)) limits.token_buckets = {1, 2, 4, 8, 32};
  if (random.Chance(0.3)) limits.sequence_buckets = {1, 4, 8};
  return limits;
}

SimExecutorOptions DrawDevice(Random& random) {
  SimExecutorOptions device;
  device.limits = DrawLimits(random);
  device.tokens_per_block = random.Pick({1, 2, 3, 4, 8, 16});
  // From a pool that holds a sequence or two to one that holds them all.
  device.blocks =
      std::max(3, random.Between(12, random.Pick({40, 200, 1000})) / device.tokens_per_block);
  device.vocab_size = random.Pick({3, 17, 50});
  device.price.step_ns = 1e6;
  if (random.Chance(0.4)) {
    device.limits.kv_host_blocks = random.Between(1, random.Pick({8, 40}));
    device.limits.block_copy_rows = random.Pick({0.1, 1.0, 4.0});
  }
  return device;
}

EngineCoreOptions DrawEngine(Random& random, const SimExecutorOptions& device) {
  EngineCoreOptions engine;
  engine.sequences_max = random.Between(1, 12);
  engine.queue_max = random.Pick({2, 12, 100, 100});
  engine.queue_tokens_max = random.Pick<int64_t>({60, 600, 1 << 20, 1 << 20});
  engine.tenants_leave_room = random.Chance(0.3);
  engine.itl_target_ns = random.Pick<int64_t>({0, 0, 1'100'000, 3'000'000});
  engine.limits = {.vocab_size = device.vocab_size,
                   .context_tokens_max = random.Between(4, 90),
                   .kv_tokens_max = int64_t{device.blocks} * device.tokens_per_block,
                   .sequences_max = engine.sequences_max};
  engine.step_limits = device.limits;
  engine.kv = {.blocks = device.blocks,
               .tokens_per_block = device.tokens_per_block,
               .prefix_cache = random.Chance(0.9)};
  if (random.Chance(0.2)) {
    engine.kv.digest = random.Pick<DigestFunction>({&WeakDigest, &ConstantDigest});
  }
  return engine;
}

// Often nothing of a kind, sometimes much of it.
double ShareOf(Random& random, double nothing, double most) {
  return random.Chance(nothing) ? 0.0 : most * random.Unit();
}

RandomWorkloadOptions DrawWorkload(Random& random, const EngineCoreOptions& engine) {
  const auto share = [&random](double most) { return ShareOf(random, 0.4, most); };
  RandomWorkloadOptions workload;
  const int64_t tokens_max =
      std::min<int64_t>(engine.limits.context_tokens_max, engine.limits.kv_tokens_max + 1);
  workload.calls = random.Between(1, random.Pick({10, 40, 120}));
  workload.gap_mean_ns = random.Pick({1e5, 2e6, 6e6, 2e7});
  workload.gap_shape = random.Pick({0.2, 1.0, 1.0, 4.0});
  workload.prompt_tokens_max = random.Between(2, static_cast<int32_t>(tokens_max));
  workload.output_tokens_max = random.Pick({1, 4, 12, 30, 60});
  workload.families = random.Between(1, 3);
  workload.vocab_size = engine.limits.vocab_size;
  workload.tokens_per_block = engine.kv.tokens_per_block;
  workload.sequences_max = engine.limits.sequences_max;
  workload.context_tokens_max = engine.limits.context_tokens_max;
  workload.time_scale_ns = random.Pick<int64_t>({1'000'000, 10'000'000, 100'000'000});
  workload.cancelled = share(0.4);
  workload.stopped = share(0.2);
  workload.with_deadline = share(0.3);
  workload.with_end_token = share(0.6);
  workload.with_many = share(0.4);
  workload.with_priority = share(0.5);
  workload.with_salt = share(0.4);
  workload.with_prompt_logprobs = share(0.1);
  workload.returning = share(0.5);
  workload.filling = share(0.15);
  workload.invalid = share(0.1);
  workload.with_retention = share(0.3);
  workload.with_tenant = share(0.8);
  return workload;
}

FaultRates DrawFaults(Random& random, const RandomWorkloadOptions& workload) {
  FaultRates faults;
  if (random.Chance(0.3)) return faults;
  const auto rate = [&random](double most) { return ShareOf(random, 0.5, most); };
  faults.slow_step = rate(0.2);
  faults.failed_step = rate(0.05);
  faults.failed_row = rate(0.1);
  faults.lost_result = rate(0.03);
  faults.pause = rate(0.3);
  faults.clock_jump = rate(0.02);
  faults.pause_ns = random.Pick<int64_t>({100'000, 3'000'000});
  faults.until_ns =
      static_cast<int64_t>(workload.gap_mean_ns * workload.calls * 2.0 * random.Unit());
  return faults;
}

}  // namespace

SimPlan PlanOfSeed(uint64_t seed) {
  Random random(seed);
  SimPlan plan;
  plan.device = DrawDevice(random);
  plan.engine = DrawEngine(random, plan.device);
  const RandomWorkloadOptions workload = DrawWorkload(random, plan.engine);
  plan.faults = DrawFaults(random, workload);
  plan.fault_seed = random.Next();
  if (random.Chance(0.15)) {
    plan.drain_ns = static_cast<int64_t>(workload.gap_mean_ns * workload.calls * random.Unit());
    plan.drain_grace_ns = random.Between(int64_t{0}, workload.time_scale_ns);
  }
  plan.workload = std::make_unique<RandomWorkload>(workload, random.Next());
  plan.description = fmt::format(
      "{} blocks of {}, {} sequences, steps of {} tokens and {} sequences, {} in flight, {} calls",
      plan.device.blocks, plan.device.tokens_per_block, plan.engine.sequences_max,
      plan.device.limits.tokens_max, plan.device.limits.sequences_max,
      plan.device.limits.steps_in_flight_max, workload.calls);
  return plan;
}

SimPlan PlanOfTrace(std::vector<TraceRequest> requests, int32_t kv_blocks) {
  SimPlan plan;
  // About a model of 70e9 weights on a node of eight accelerators: 80,000 prompt tokens a second,
  // 25 ms between tokens.
  plan.device = {
      .limits = {.tokens_max = 8192, .sequences_max = 512, .prefill_sequences_max = 512},
      .blocks = kv_blocks,
      .tokens_per_block = kTraceTokensPerBlock,
      .vocab_size = kTraceVocabSize,
      .price = {.step_ns = 20e6, .token_ns = 12'000, .context_token_ns = 4, .sequence_ns = 20'000}};
  plan.engine = {.sequences_max = 512,
                 .queue_max = static_cast<int32_t>(requests.size()),
                 .queue_tokens_max = int64_t{1} << 40,
                 .limits = {.vocab_size = kTraceVocabSize,
                            .context_tokens_max = 1 << 18,
                            .kv_tokens_max = int64_t{kv_blocks} * kTraceTokensPerBlock,
                            .sequences_max = 512},
                 .step_limits = plan.device.limits,
                 .kv = {.blocks = kv_blocks, .tokens_per_block = kTraceTokensPerBlock}};
  plan.description = fmt::format("{} requests on {} blocks of {} tokens", requests.size(),
                                 kv_blocks, kTraceTokensPerBlock);
  plan.workload = std::make_unique<TraceWorkload>(std::move(requests));
  plan.integrity_every = 2000;
  return plan;
}

}  // namespace polysil

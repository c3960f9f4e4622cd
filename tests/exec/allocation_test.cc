// After warm-up a step of decodes allocates nothing on the thread that owns the device.
#include "fakes/allocation_count.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "exec/model_runner.h"
#include "model/checkpoint.h"
#include "model/golden_model.h"

namespace polysil {
namespace {

constexpr int32_t kSequences = 8;
constexpr int32_t kBlocks = 16;  // of a sequence
constexpr int32_t kPrompt = 3;

// The step after `decodes` decodes: at first the prompts, and all blocks at once.
void Fill(ScheduledStep& step, int32_t decodes) {
  step.step_id = decodes + 1;
  for (int32_t i = 0; i < kSequences; ++i) {
    const SequenceId id{static_cast<uint64_t>(i) + 1};
    ScheduledSequence row{.id = id, .tokens = kPrompt, .blocks_replaced = true, .sample = true};
    std::vector<BlockId> blocks;
    if (decodes == 0) {
      const Request request{
          .prompt = {2, 3, i},
          .sampling = {.temperature = i % 2 == 0 ? 0.0F : 0.8F, .top_p = 0.9F, .tokens_max = 1000}};
      step.started.push_back({.id = id, .request = std::make_shared<const Request>(request)});
      for (int32_t b = 0; b < kBlocks; ++b) blocks.push_back({i * kBlocks + b});
    } else {
      row.blocks_replaced = false;
      row.tokens_computed = kPrompt + decodes - 1;
      row.tokens = 1;
    }
    step.Add(row, blocks);
  }
}

TEST(RunnerAllocations, NoneInAStepOfDecodes) {
  auto checkpoint = OpenCheckpoint(POLYSIL_SOURCE_DIR "/tests/data/model/gemma3-bf16");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const ModelSpec& spec = (*checkpoint)->spec();
  auto runner =
      ModelRunner::Create(golden::CpuDevice(CpuActivations::kQ8), spec, (*checkpoint)->weights(),
                          {.limits = {.tokens_max = 64},
                           .kv_blocks = kSequences * kBlocks,
                           .kv_layout = {.layers = spec.layer_count(),
                                         .kv_heads = spec.kv_heads,
                                         .head_size = spec.head_size,
                                         .tokens_per_block = 16,
                                         .dtype = DType::kF16}});
  ASSERT_TRUE(runner.ok()) << runner.status();
  ScheduledStep step;
  int64_t allocations = 0;
  // There is room for 64 tokens of output at first, then for 134 in all.
  for (int32_t decodes = 0; decodes < 120; ++decodes) {
    Fill(step, decodes);
    StepResult result;
    const int64_t counted = CountAllocations([&] { result = (*runner)->Run(std::move(step)); });
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.sequences.size(), size_t{kSequences});
    if (decodes >= 70) allocations += counted;
    step = std::move(result.step);
    step.Clear();
    result.sequences.clear();
    step.results_memory = std::move(result.sequences);
  }
  EXPECT_EQ(allocations, 0);
}

}  // namespace
}  // namespace polysil

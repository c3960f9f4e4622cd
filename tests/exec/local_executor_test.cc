#include "exec/local_executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "exec/executor_driver.h"
#include "model/golden_model.h"

namespace polysil {
namespace {

std::string DataPath(const std::string& name) {
  return std::string(POLYSIL_SOURCE_DIR) + "/tests/data/model/" + name;
}

std::unique_ptr<Checkpoint> Open(const std::string& path) {
  auto checkpoint = OpenCheckpoint(path);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  return *std::move(checkpoint);
}

Request Greedy(std::vector<TokenId> prompt, int32_t tokens_max = 32) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = {.temperature = 0.0F, .tokens_max = tokens_max, .logprobs = 2};
  return request;
}

class LocalExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Checkpoint> checkpoint_ = Open(DataPath("gemma3-bf16"));
  std::vector<golden::Prompt> prompts_ = golden::ReadPrompts(DataPath("gemma3-bf16/golden.json"));
};

TEST_F(LocalExecutorTest, SaysWhatItIs) {
  ExecutorDriver driver(*checkpoint_, {.activations = CpuActivations::kQ8,
                                       .kv_dtype = DType::kF16,
                                       .tokens_max = 99,
                                       .sequences_max = 9,
                                       .kv_blocks = 77});
  const LocalExecutor& executor = driver.executor();
  EXPECT_EQ(executor.limits().tokens_max, 99);
  EXPECT_EQ(executor.limits().sequences_max, 9);
  EXPECT_EQ(executor.kv_blocks(), 77);
  EXPECT_EQ(executor.kv_layout().layers, 6);
  EXPECT_EQ(executor.kv_layout().kv_heads, 1);
  EXPECT_EQ(executor.kv_layout().head_size, 16);
  EXPECT_EQ(executor.kv_layout().dtype, DType::kF16);
  EXPECT_NE(executor.numeric_class().name.find("/BF16/F16"), std::string::npos)
      << executor.numeric_class().name;
  ExecutorDriver exact(*checkpoint_, {});
  EXPECT_NE(exact.executor().numeric_class(), executor.numeric_class());
}

TEST_F(LocalExecutorTest, GivesTheReferenceTokensOfAllPromptsAtOnce) {
  ExecutorDriver driver(*checkpoint_, {});
  std::vector<DrivenSequence> sequences;
  for (const golden::Prompt& prompt : prompts_)
    sequences.push_back(driver.Add(Greedy(prompt.prompt_ids)));
  for (size_t i = 0; i < prompts_[0].output_ids.size(); ++i) {
    std::vector<std::pair<DrivenSequence*, int32_t>> plan;
    for (DrivenSequence& sequence : sequences) plan.emplace_back(&sequence, sequence.rows_left());
    driver.Step(plan);
  }
  for (size_t i = 0; i < prompts_.size(); ++i) {
    ASSERT_GT(*std::min_element(prompts_[i].margins.begin(), prompts_[i].margins.end()), 1e-3);
    EXPECT_EQ(sequences[i].output(), prompts_[i].output_ids) << "prompt " << i;
    for (size_t j = 0; j < prompts_[i].output_ids.size(); ++j) {
      EXPECT_NEAR(sequences[i].logprobs[j].chosen.logprob, prompts_[i].output_logprobs[j], 1e-3);
    }
  }
}

TEST_F(LocalExecutorTest, PromptLogprobsAreThoseOfTheReferenceHoweverChunked) {
  ExecutorDriver driver(*checkpoint_, {});
  for (const golden::Prompt& prompt : prompts_) {
    for (const int32_t chunk : {1, 15, 16, 17, 1000}) {
      Request request = Greedy(prompt.prompt_ids);
      request.sampling.prompt_logprobs = 0;
      DrivenSequence sequence = driver.Add(request);
      driver.Generate(sequence, 1, chunk);
      ASSERT_EQ(sequence.prompt_logprobs.size(), prompt.prompt_ids.size() - 1);
      for (size_t p = 1; p < prompt.prompt_ids.size(); ++p) {
        const TokenLogprobs& got = sequence.prompt_logprobs[p - 1];
        EXPECT_EQ(got.chosen.id, prompt.prompt_ids[p]);
        EXPECT_NEAR(got.chosen.logprob, prompt.prompt_logprobs[p], 1e-3) << "position " << p;
        EXPECT_TRUE(got.top.empty());
      }
      driver.End(sequence);
      driver.Preempt(sequence);
    }
  }
}

// More rows of logits than are computed at once.
TEST_F(LocalExecutorTest, ManySequencesChooseInOneStep) {
  ExecutorDriver driver(*checkpoint_, {.tokens_max = 512, .sequences_max = 100});
  std::vector<DrivenSequence> sequences;
  std::vector<std::pair<DrivenSequence*, int32_t>> plan;
  for (int32_t i = 0; i < 100; ++i) sequences.push_back(driver.Add(Greedy({2, 7 + i % 3, 40})));
  for (DrivenSequence& sequence : sequences) plan.emplace_back(&sequence, sequence.rows_left());
  driver.Step(plan);
  for (int32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(sequences[i].output(), sequences[i % 3].output());
    EXPECT_TRUE(sequences[i].logprobs == sequences[i % 3].logprobs);
  }
}

// A step that breaks the protocol fails whole, changes nothing, and the next one runs.
TEST_F(LocalExecutorTest, ABadStepFailsAndTheNextOneRuns) {
  ExecutorDriver driver(*checkpoint_, {.tokens_max = 200, .kv_blocks = 32});
  const std::vector<TokenId> prompt = prompts_[3].prompt_ids;
  DrivenSequence sequence = driver.Add(Greedy(prompt));
  driver.Step({{&sequence, 40}});
  const SequenceId id = sequence.id;
  const auto begin = static_cast<int32_t>(sequence.tokens_computed);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  struct BadSequence {
    ScheduledSequence scheduled;
    std::vector<BlockId> blocks;  // of the step
  };
  const std::vector<BadSequence> bad = {
      {{.id = {999}, .tokens = 1, .blocks_new = 1}, {{1}}},
      {{.id = id, .tokens_computed = begin, .tokens = 0}, {}},
      {{.id = id, .tokens_computed = begin, .tokens = -5}, {}},
      {{.id = id, .tokens_computed = -1, .tokens = 5}, {}},
      {{.id = id, .tokens_computed = begin, .tokens = 9}, {{1}}},  // no block for it
      {{.id = id, .tokens_computed = begin, .tokens = 9, .blocks_new = 1}, {{32}}},  // none such
      {{.id = id, .tokens_computed = begin, .tokens = 9, .blocks_new = 1}, {{-1}}},
      {{.id = id, .tokens_computed = begin, .tokens = 5, .sample = true, .blocks_new = 1}, {{3}}},
      {{.id = id, .tokens_computed = begin, .tokens = 100000}, {}},
      {{.id = id, .tokens_computed = kMost, .tokens = 5}, {}},
      // Blocks that the step does not have.
      {{.id = id, .tokens_computed = begin, .tokens = 1, .blocks_new = 2}, {{3}}},
      {{.id = id, .tokens_computed = begin, .tokens = 1, .blocks_begin = 1, .blocks_new = 1},
       {{3}}},
      {{.id = id, .tokens_computed = begin, .tokens = 1, .blocks_begin = -1, .blocks_new = 1},
       {{3}}},
      {{.id = id, .tokens_computed = begin, .tokens = 1, .blocks_new = -1}, {{3}}},
      {{.id = id, .tokens_computed = begin, .tokens = 1, .blocks_begin = 1, .blocks_new = kMost},
       {{3}}},
  };
  for (const auto& [scheduled, blocks] : bad) {
    const StepResult result = driver.Run(
        {.step_id = driver.next_step_id(), .sequences = {scheduled}, .blocks_new = blocks});
    EXPECT_EQ(result.status.code(), StatusCode::kInternal);
    EXPECT_TRUE(result.sequences.empty());
  }
  const ScheduledSequence one{.id = id, .tokens_computed = begin, .tokens = 1};
  EXPECT_FALSE(driver.Run({.step_id = driver.next_step_id(), .sequences = {one, one}}).status.ok());
  driver.Generate(sequence, 32);
  EXPECT_EQ(sequence.output(), prompts_[3].output_ids);
}

// Its copies are not made either.
TEST_F(LocalExecutorTest, CopiesOutOfRangeFailTheStep) {
  ExecutorDriver driver(*checkpoint_, {.kv_blocks = 8, .kv_host_blocks = 4});
  const auto on_host = [](int32_t block) { return KvPlace{KvTier::kHost, {block}}; };
  const auto on_device = [](int32_t block) { return KvPlace{KvTier::kDevice, {block}}; };
  for (const KvCopy& copy : std::vector<KvCopy>{{on_device(8), on_host(0)},
                                                {on_device(-1), on_host(0)},
                                                {on_host(4), on_device(0)},
                                                {on_device(0), on_device(1)}}) {
    const StepResult result = driver.Run({.step_id = driver.next_step_id(), .copies = {copy}});
    EXPECT_FALSE(result.status.ok());
  }
  const StepResult result =
      driver.Run({.step_id = driver.next_step_id(),
                  .copies = {{on_device(7), on_host(3)}, {on_host(3), on_device(0)}}});
  EXPECT_TRUE(result.status.ok()) << result.status;
}

// What a copy costs is measured where there is a host tier; the blocks that this wrote do no harm.
TEST_F(LocalExecutorTest, ACopyIsCheaperThanComputing) {
  ExecutorDriver driver(*checkpoint_, {.kv_blocks = 8, .kv_host_blocks = 4});
  const double rows = driver.executor().limits().block_copy_rows;
  EXPECT_GT(rows, 0.0);
  EXPECT_LT(rows, driver.executor().kv_layout().tokens_per_block);
  DrivenSequence sequence = driver.Add(Greedy(prompts_[1].prompt_ids));
  driver.Generate(sequence, 32);
  EXPECT_EQ(sequence.output(), prompts_[1].output_ids);
}

TEST_F(LocalExecutorTest, AnEmptyStepIsAnswered) {
  ExecutorDriver driver(*checkpoint_, {});
  const StepResult result = driver.Run({.step_id = driver.next_step_id()});
  EXPECT_TRUE(result.status.ok());
  EXPECT_TRUE(result.sequences.empty());
}

// Values that the door should have refused fail their row; the neighbour runs.
TEST_F(LocalExecutorTest, ARowWithBadValuesFailsAlone) {
  ExecutorDriver driver(*checkpoint_, {});
  std::vector<Request> bad(4, Greedy({2, 3, 4}));
  bad[0].prompt = {2, 517};
  bad[1].prompt = {-1};
  bad[2].sampling.logit_bias = {{517, 1.0F}};
  bad[3].sampling.repetition_penalty = 0.0F;
  for (const Request& request : bad) {
    DrivenSequence refused = driver.Add(request);
    DrivenSequence good = driver.Add(Greedy(prompts_[1].prompt_ids));
    driver.Step({{&refused, refused.rows_left()}, {&good, good.rows_left()}});
    EXPECT_EQ(refused.status.code(), StatusCode::kInvalidArgument);
    driver.Generate(good, 32);
    EXPECT_EQ(good.output(), prompts_[1].output_ids);
  }
}

TEST_F(LocalExecutorTest, EndTokensWaitForTheMinimum) {
  ExecutorDriver driver(*checkpoint_, {});
  const golden::Prompt& prompt = prompts_[1];
  Request request = Greedy(prompt.prompt_ids);
  request.end_token_ids = {prompt.output_ids[0]};
  request.sampling.tokens_min = 3;
  DrivenSequence sequence = driver.Add(request);
  driver.Generate(sequence, 6);
  for (int32_t i = 0; i < 3; ++i) EXPECT_NE(sequence.output()[i], prompt.output_ids[0]);
}

// Steps queued behind each other: a token chosen by one is computed by the next, before the engine
// has seen it.
TEST_F(LocalExecutorTest, StepsInFlightFollowEachOther) {
  auto device = CreateCpuDevice({.threads = 1, .activations = CpuActivations::kF32});
  ASSERT_TRUE(device.ok());
  auto executor = LocalExecutor::Create(
      *std::move(device), *checkpoint_,
      {.limits = {.steps_in_flight_max = 4}, .kv_blocks = 64, .kv_dtype = DType::kF32});
  ASSERT_TRUE(executor.ok()) << executor.status();
  const golden::Prompt& prompt = prompts_[1];
  const auto request = std::make_shared<const Request>(Greedy(prompt.prompt_ids));
  const auto prompt_tokens = static_cast<int32_t>(prompt.prompt_ids.size());
  for (int32_t i = 0; i < 4; ++i) {
    ScheduledStep step{.step_id = i + 1};
    ScheduledSequence scheduled{.id = {1}, .sample = true};
    std::vector<BlockId> blocks;
    if (i == 0) {
      step.started = {{.id = {1}, .request = request}};
      scheduled.blocks_replaced = true;
      for (int32_t block = 0; block < 8; ++block) blocks.push_back({block * 3});
    }
    scheduled.tokens_computed = i == 0 ? 0 : prompt_tokens + i - 1;
    scheduled.tokens = i == 0 ? prompt_tokens : 1;
    step.Add(scheduled, blocks);
    (*executor)->Submit(std::move(step));
  }
  for (int32_t i = 0; i < 4; ++i) {
    std::optional<StepResult> result;
    while (!(result = (*executor)->Poll())) std::this_thread::yield();
    ASSERT_TRUE(result->status.ok()) << result->status;
    EXPECT_EQ(result->step_id, i + 1);
    EXPECT_EQ(result->sequences[0].token, prompt.output_ids[i]);
  }
}

TEST_F(LocalExecutorTest, RefusesWhatCannotRun) {
  const auto create = [&](const LocalExecutorOptions& options) {
    auto device = CreateCpuDevice({.threads = 1});
    EXPECT_TRUE(device.ok());
    return LocalExecutor::Create(*std::move(device), *checkpoint_, options).status();
  };
  EXPECT_TRUE(create({.kv_blocks = 1}).ok());
  EXPECT_FALSE(create({.kv_blocks = 0}).ok());
  EXPECT_FALSE(create({.kv_blocks = 1, .kv_block_tokens = 0}).ok());
  EXPECT_FALSE(create({.kv_blocks = 1, .kv_block_tokens = 12}).ok());
  EXPECT_FALSE(create({.kv_blocks = 1, .kv_block_tokens = 1 << 30}).ok());
  EXPECT_FALSE(
      create({.kv_blocks = std::numeric_limits<int32_t>::max(), .kv_block_tokens = 4096}).ok());
  EXPECT_FALSE(create({.kv_blocks = 1, .kv_dtype = DType::kQ8_0}).ok());
  EXPECT_FALSE(create({.limits = {.tokens_max = 0}, .kv_blocks = 1}).ok());
  EXPECT_FALSE(create({.limits = {.sequences_max = 0}, .kv_blocks = 1}).ok());
  EXPECT_FALSE(create({.limits = {.steps_in_flight_max = 0}, .kv_blocks = 1}).ok());
}

// llama-mixed.gguf with a NaN in the embedding of one rare token.
constexpr TokenId kPoisoned = 300;

class PoisonedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string file = golden::ReadFile(DataPath("llama-mixed.gguf"));
    const std::unique_ptr<Checkpoint> sound = Open(DataPath("llama-mixed.gguf"));
    const HostTensor& embedding = sound->weights().embedding;
    ASSERT_EQ(embedding.dtype, DType::kQ8_0);
    const int64_t row_bytes = embedding.cols / 32 * 34;
    const std::string row(reinterpret_cast<const char*>(embedding.data) + kPoisoned * row_bytes,
                          row_bytes);
    const size_t place = file.find(row);
    ASSERT_NE(place, std::string::npos);
    file[place + 1] = '\x7e';  // the first block's scale: 0x7e.. is NaN in float16
    std::ofstream(path_, std::ios::binary) << file;
    checkpoint_ = Open(path_);
  }
  ~PoisonedModel() override { std::filesystem::remove(path_); }

  const std::string path_ = ::testing::TempDir() + "polysil_nan_model.gguf";
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<golden::Prompt> prompts_ = golden::ReadPrompts(DataPath("llama-mixed.golden.json"));
};

// The request that uses it fails, its neighbours do not.
TEST_F(PoisonedModel, ARowThatIsNotFiniteFailsAlone) {
  for (const CpuActivations activations : {CpuActivations::kF32, CpuActivations::kQ8}) {
    ExecutorDriver driver(*checkpoint_, {.activations = activations});
    DrivenSequence alone = driver.Add(Greedy(prompts_[1].prompt_ids));
    driver.Generate(alone, 20);
    ASSERT_TRUE(alone.status.ok()) << alone.status;
    DrivenSequence poisoned = driver.Add(Greedy({512, 5, kPoisoned, 6}));
    DrivenSequence neighbour = driver.Add(Greedy(prompts_[1].prompt_ids));
    const StepResult result =
        driver.Step({{&poisoned, poisoned.rows_left()}, {&neighbour, neighbour.rows_left()}});
    EXPECT_TRUE(result.status.ok());
    EXPECT_EQ(poisoned.status.code(), StatusCode::kInternal);
    EXPECT_FALSE(result.sequences[0].token.has_value());
    EXPECT_FALSE(result.sequences[0].logprobs.has_value());
    driver.Generate(neighbour, 20);
    EXPECT_EQ(neighbour.output(), alone.output());
    EXPECT_TRUE(neighbour.logprobs == alone.logprobs);
  }
}

// Steps that were on their way when a row failed run it once more, with a token that never came.
TEST_F(PoisonedModel, RowsThatFollowAFailedOneFailAlone) {
  constexpr int32_t kSteps = 4;
  ExecutorDriver driver(*checkpoint_, {});
  DrivenSequence alone = driver.Add(Greedy(prompts_[1].prompt_ids));
  driver.Generate(alone, kSteps);
  auto executor = LocalExecutor::Create(
      golden::CpuDevice(CpuActivations::kF32), *checkpoint_,
      {.limits = {.steps_in_flight_max = kSteps}, .kv_blocks = 64, .kv_dtype = DType::kF32});
  ASSERT_TRUE(executor.ok()) << executor.status();
  const std::vector<std::vector<TokenId>> prompts = {{512, 5, kPoisoned, 6},
                                                     prompts_[1].prompt_ids};
  for (int32_t i = 0; i < kSteps; ++i) {
    ScheduledStep step{.step_id = i + 1};
    for (uint64_t s = 0; s < prompts.size(); ++s) {
      const auto prompt_tokens = static_cast<int32_t>(prompts[s].size());
      ScheduledSequence scheduled{.id = {s + 1}, .sample = true};
      std::vector<BlockId> blocks;
      if (i == 0) {
        step.started.push_back(
            {.id = {s + 1}, .request = std::make_shared<const Request>(Greedy(prompts[s]))});
        scheduled.blocks_replaced = true;
        for (int32_t block = 0; block < 8; ++block) {
          blocks.push_back({block * 2 + static_cast<int32_t>(s)});
        }
      }
      scheduled.tokens_computed = i == 0 ? 0 : prompt_tokens + i - 1;
      scheduled.tokens = i == 0 ? prompt_tokens : 1;
      step.Add(scheduled, blocks);
    }
    (*executor)->Submit(std::move(step));
  }
  for (int32_t i = 0; i < kSteps; ++i) {
    std::optional<StepResult> result;
    while (!(result = (*executor)->Poll())) std::this_thread::yield();
    ASSERT_TRUE(result->status.ok()) << result->status;
    EXPECT_EQ(result->sequences[0].status.code(), StatusCode::kInternal);
    EXPECT_FALSE(result->sequences[0].token.has_value());
    EXPECT_EQ(result->sequences[1].token, alone.output()[static_cast<size_t>(i)]);
  }
}

// A sign of life for each operation, on the thread that works.
TEST_F(LocalExecutorTest, AStepTellsThatItMoves) {
  auto executor = LocalExecutor::Create(golden::CpuDevice(CpuActivations::kF32), *checkpoint_,
                                        {.limits = {.tokens_max = 64}, .kv_blocks = 64});
  ASSERT_TRUE(executor.ok()) << executor.status();
  std::atomic<int32_t> beats = 0;
  (*executor)->SetHeartbeat([&] { ++beats; });
  ScheduledStep step{.step_id = 1};
  step.started = {
      {.id = {1}, .request = std::make_shared<const Request>(Greedy(prompts_[1].prompt_ids))}};
  ScheduledSequence scheduled{.id = {1}, .blocks_replaced = true, .sample = true};
  scheduled.tokens = static_cast<int32_t>(prompts_[1].prompt_ids.size());
  std::vector<BlockId> blocks;
  for (int32_t block = 0; block < 8; ++block) blocks.push_back({block});
  step.Add(scheduled, blocks);
  (*executor)->Submit(std::move(step));
  while (!(*executor)->Poll()) std::this_thread::yield();
  // Products and attention of each layer, and the logits.
  EXPECT_EQ(beats, checkpoint_->spec().layer_count() * 5 + 1);
}

}  // namespace
}  // namespace polysil

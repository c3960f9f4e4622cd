// The tokens of a request and the bits of its log-probabilities do not depend on who shares the
// step, on how the prompt was chunked, on preemption, on blocks that another sequence computed, or
// on the number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "exec/executor_driver.h"
#include "model/golden_model.h"

namespace polysil {
namespace {

struct Case {
  std::string name;
  CpuActivations activations;
  DType kv;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class BatchInvariance : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string data = std::string(POLYSIL_SOURCE_DIR) + "/tests/data/model/";
    const std::map<std::string, std::string> paths = {
        {"gemma3", data + "gemma3-bf16"},
        {"mixed", data + "llama-mixed.gguf"},
        {"phi3", golden::SharedPath("tiny/phi3")},
        {"kquants", golden::SharedPath("tiny/gguf/llama-kquants.gguf")},
        {"smollm2", std::string(POLYSIL_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf"},
    };
    const std::string& path = paths.at(GetParam().name);
    if (golden::kSanitized && GetParam().name == "smollm2") {
      GTEST_SKIP() << "too slow under a sanitizer";
    }
    if (!golden::Exists(path)) GTEST_SKIP() << path << " is not there";
    auto checkpoint = OpenCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    driver_ = MakeDriver(2);
    alone_ = driver_->Add(Subject());
    driver_->Generate(alone_, kOutputs);
    ASSERT_TRUE(alone_.status.ok()) << alone_.status;
    ASSERT_EQ(alone_.output().size(), static_cast<size_t>(kOutputs));
    ASSERT_EQ(alone_.prompt_logprobs.size(), static_cast<size_t>(kPrompt - 1));
  }

  std::unique_ptr<ExecutorDriver> MakeDriver(int32_t threads) const {
    return std::make_unique<ExecutorDriver>(
        *checkpoint_,
        DriverOptions{
            .threads = threads, .activations = GetParam().activations, .kv_dtype = GetParam().kv});
  }

  std::vector<TokenId> Tokens(int32_t count, int32_t salt) const {
    std::vector<TokenId> ids;
    for (int64_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<TokenId>((i * i * 31 + i * 17 + salt * 101) %
                                         std::min(checkpoint_->spec().vocab_size, 500)));
    }
    return ids;
  }

  // Samples with everything on, so that draws, penalties and filters take part.
  Request Subject() const {
    Request request;
    request.prompt = Tokens(kPrompt, 0);
    request.sampling = {.temperature = 0.8F,
                        .top_p = 0.95F,
                        .top_k = 100,
                        .repetition_penalty = 1.1F,
                        .frequency_penalty = 0.2F,
                        .seed = 11,
                        .tokens_max = kOutputs,
                        .logprobs = 3,
                        .prompt_logprobs = 2};
    return request;
  }

  Request Neighbour(int32_t prompt, int32_t salt) const {
    Request request;
    request.prompt = Tokens(prompt, salt);
    request.sampling = {.temperature = salt % 2 == 0 ? 0.0F : 1.0F,
                        .seed = static_cast<uint64_t>(salt),
                        .tokens_max = 1000};
    return request;
  }

  void ExpectSame(const DrivenSequence& other) const {
    EXPECT_TRUE(other.status.ok()) << other.status;
    EXPECT_EQ(other.output(), alone_.output());
    EXPECT_TRUE(other.logprobs == alone_.logprobs) << "log-probabilities differ in their bits";
    EXPECT_TRUE(other.prompt_logprobs == alone_.prompt_logprobs) << "of the prompt";
  }

  static constexpr int32_t kPrompt =
      77;  // into a fifth block; beyond every window of the tiny models
  static constexpr int32_t kOutputs = 20;

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<ExecutorDriver> driver_;
  DrivenSequence alone_;
};

TEST_P(BatchInvariance, Again) {
  DrivenSequence again = driver_->Add(Subject());
  driver_->Generate(again, kOutputs);
  ExpectSame(again);
}

TEST_P(BatchInvariance, ChunkedDifferently) {
  for (const int32_t chunk : {1, 3, 7, 16, 33}) {
    SCOPED_TRACE(chunk);
    DrivenSequence chunked = driver_->Add(Subject());
    driver_->Generate(chunked, kOutputs, chunk);
    ExpectSame(chunked);
    driver_->Preempt(chunked);
    driver_->End(chunked);
  }
}

// Neighbours of many lengths come and go, prefill beside decode.
TEST_P(BatchInvariance, Batched) {
  DrivenSequence subject = driver_->Add(Subject());
  std::vector<DrivenSequence> neighbours;
  for (int32_t i = 0; i < 7; ++i) neighbours.push_back(driver_->Add(Neighbour(3 + 11 * i, i + 1)));
  for (int32_t round = 0; static_cast<int32_t>(subject.output().size()) < kOutputs; ++round) {
    std::vector<std::pair<DrivenSequence*, int32_t>> plan;
    const auto add = [&](DrivenSequence& sequence, int32_t chunk) {
      plan.emplace_back(&sequence, std::min(chunk, sequence.rows_left()));
    };
    for (int32_t i = 0; i < 7; ++i) {
      if ((round + i) % 3 != 0) add(neighbours[i], 5 + i);
      if (i == round % 7) add(subject, 29);
    }
    driver_->Step(plan);
  }
  ExpectSame(subject);
}

// Batches of 1 to 24 sequences drawn at random, of which most decode and some compute a part of
// their prompt: all the ways in which rows may be grouped into products and tiles.
TEST_P(BatchInvariance, InRandomBatchesOnAnyNumberOfThreads) {
  for (int32_t threads = 1; threads <= 4; ++threads) {
    SCOPED_TRACE(threads);
    const std::unique_ptr<ExecutorDriver> driver = MakeDriver(threads);
    std::mt19937 random(static_cast<uint32_t>(threads));
    const auto draw = [&random](int32_t bound) {
      return static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
    };
    DrivenSequence subject = driver->Add(Subject());
    std::vector<DrivenSequence> neighbours;
    for (int32_t i = 0; i < 24; ++i) neighbours.push_back(driver->Add(Neighbour(1 + draw(40), i)));
    while (static_cast<int32_t>(subject.output().size()) < kOutputs) {
      std::vector<std::pair<DrivenSequence*, int32_t>> plan;
      const int32_t count = draw(25);
      std::shuffle(neighbours.begin(), neighbours.end(), random);
      for (int32_t i = 0; i < count; ++i) {
        if (i == count / 2) plan.emplace_back(&subject, 1 + draw(subject.rows_left()));
        DrivenSequence& neighbour = neighbours[static_cast<size_t>(i)];
        const int32_t chunk = draw(4) == 0 ? 1 + draw(9) : 1;
        plan.emplace_back(&neighbour, std::min(chunk, neighbour.rows_left()));
      }
      if (count == 0) plan.emplace_back(&subject, 1 + draw(subject.rows_left()));
      driver->Step(plan);
    }
    ExpectSame(subject);
  }
}

TEST_P(BatchInvariance, AfterPreemption) {
  DrivenSequence subject = driver_->Add(Subject());
  DrivenSequence neighbour = driver_->Add(Neighbour(40, 9));
  driver_->Generate(subject, 7, 19);
  driver_->Preempt(subject);
  driver_->Generate(neighbour, 3);  // writes into the blocks that were given up
  // Recomputing gives the prompt's log-probabilities once more; the engine passes them on once.
  subject.prompt_logprobs.clear();
  driver_->Generate(subject, 13, 25);
  driver_->Preempt(subject);
  subject.prompt_logprobs.clear();
  driver_->Generate(subject, kOutputs, 1 << 20);
  ExpectSame(subject);
}

TEST_P(BatchInvariance, OnBlocksThatAnotherComputed) {
  Request request = Subject();
  request.sampling.prompt_logprobs.reset();  // bars cache hits
  for (const int32_t blocks : {1, 4}) {
    DrivenSequence subject = driver_->Add(request);
    driver_->ShareBlocks(alone_, subject, blocks);
    driver_->Generate(subject, kOutputs);
    subject.prompt_logprobs = alone_.prompt_logprobs;
    ExpectSame(subject);
  }
}

TEST_P(BatchInvariance, OfTwoSequencesOfOneRequestEachHasItsOwnDraws) {
  Request request = Subject();
  request.sequences = 3;
  std::vector<DrivenSequence> sequences;
  for (int32_t i = 0; i < 3; ++i) sequences.push_back(driver_->Add(request, i));
  while (sequences[2].output().size() < kOutputs) {
    std::vector<std::pair<DrivenSequence*, int32_t>> plan;
    for (DrivenSequence& sequence : sequences) plan.emplace_back(&sequence, sequence.rows_left());
    driver_->Step(plan);
  }
  ExpectSame(sequences[0]);
  EXPECT_NE(sequences[1].output(), alone_.output());
  EXPECT_NE(sequences[2].output(), alone_.output());
  EXPECT_NE(sequences[2].output(), sequences[1].output());
}

std::string Name(const ::testing::TestParamInfo<Case>& test) {
  return test.param.name + (test.param.activations == CpuActivations::kF32 ? "_f32" : "_q8") +
         (test.param.kv == DType::kF32   ? "_kv32"
          : test.param.kv == DType::kF16 ? "_kv16"
                                         : "_kv8");
}

INSTANTIATE_TEST_SUITE_P(Models, BatchInvariance,
                         ::testing::Values(Case{"gemma3", CpuActivations::kF32, DType::kF32},
                                           Case{"gemma3", CpuActivations::kQ8, DType::kF16},
                                           Case{"mixed", CpuActivations::kF32, DType::kF32},
                                           Case{"mixed", CpuActivations::kQ8, DType::kF16},
                                           Case{"phi3", CpuActivations::kQ8, DType::kF16},
                                           Case{"gemma3", CpuActivations::kQ8, DType::kI8},
                                           Case{"mixed", CpuActivations::kQ8, DType::kI8},
                                           Case{"kquants", CpuActivations::kQ8, DType::kF16},
                                           Case{"smollm2", CpuActivations::kQ8, DType::kF16}),
                         Name);

}  // namespace
}  // namespace polysil

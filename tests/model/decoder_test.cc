// The Decoder against golden answers computed in float64 by transformers: every dense architecture,
// on the float path (activations and KV in float32), and the default path within a bound.
#include "model/decoder.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "model/golden_model.h"

namespace polysil {
namespace {

using golden::Harness;
using golden::Prompt;

constexpr double kTolerance = 1e-3;

struct Case {
  std::string name;    // of a folder of tiny/, or of a file of tiny/gguf/
  double mean_q8_max;  // mean |difference of log-probabilities| on the default path
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

std::string DataPath(const std::string& name) {
  const std::string copy = std::string(POLYSIL_SOURCE_DIR) + "/tests/data/model/" + name;
  if (golden::Exists(copy) || golden::Exists(copy + ".gguf")) return copy;
  const std::string folder = golden::SharedPath("tiny/" + name);
  return golden::Exists(folder) ? folder : golden::SharedPath("tiny/gguf/" + name);
}

class GoldenModel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string path = DataPath(GetParam().name);
    const bool gguf = golden::Exists(path + ".gguf");
    if (!gguf && !golden::Exists(path)) GTEST_SKIP() << path << " is not there";
    auto checkpoint = OpenCheckpoint(gguf ? path + ".gguf" : path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_ = *std::move(checkpoint);
    prompts_ = golden::ReadPrompts(gguf ? path + ".golden.json" : path + "/golden.json");
    ASSERT_EQ(prompts_.size(), 4U);
  }

  Harness MakeHarness(CpuActivations activations, DType kv, int32_t layers = -1) const {
    if (layers < 0) layers = checkpoint_->spec().layer_count();
    return Harness(golden::CpuDevice(activations), *checkpoint_, layers, kv, 512);
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<Prompt> prompts_;
};

std::vector<TokenId> PromptAndOutput(const Prompt& prompt) {
  std::vector<TokenId> ids = prompt.prompt_ids;
  ids.insert(ids.end(), prompt.output_ids.begin(), prompt.output_ids.end() - 1);
  return ids;
}

// Feeds the prompt and the expected output; row i must then predict what stands at i + 1.
void CheckTeacherForced(Harness& harness, const Prompt& prompt, double& worst) {
  const std::vector<TokenId> ids = PromptAndOutput(prompt);
  harness.Forward(ids, 0);
  const size_t prompt_size = prompt.prompt_ids.size();
  for (size_t row = 0; row < ids.size(); ++row) {
    const std::vector<float> logits = harness.Logits(static_cast<int32_t>(row));
    const std::vector<double> logprobs = golden::LogSoftmax(logits);
    if (row + 1 < prompt_size) {
      const double expected = prompt.prompt_logprobs[row + 1];
      ASSERT_NEAR(logprobs[prompt.prompt_ids[row + 1]], expected, kTolerance) << "row " << row;
    } else {
      const size_t output = row + 1 - prompt_size;
      const TokenId token = prompt.output_ids[output];
      ASSERT_NEAR(logprobs[token], prompt.output_logprobs[output], kTolerance) << "row " << row;
      if (prompt.margins[output] > kTolerance) {
        ASSERT_EQ(golden::ArgMax(logits), token);
      }
    }
    if (row + 1 == prompt_size) {
      worst = std::max(worst, golden::MaxDifference(logits, prompt.logits_last));
    }
    if (row < prompt.logits_all.size()) {
      worst = std::max(worst, golden::MaxDifference(logits, prompt.logits_all[row]));
    }
  }
}

TEST_P(GoldenModel, FloatPathGivesTheReferenceLogits) {
  Harness harness = MakeHarness(CpuActivations::kF32, DType::kF32);
  double worst = 0.0;
  for (const Prompt& prompt : prompts_) {
    CheckTeacherForced(harness, prompt, worst);
    if (HasFatalFailure()) return;
  }
  std::printf("%-20s largest difference of a logit %.1e\n", GetParam().name.c_str(), worst);
  EXPECT_LE(worst, kTolerance);
}

TEST_P(GoldenModel, EveryLayerGivesTheReferenceHiddenState) {
  int32_t layers_checked = 0;
  for (const Prompt& prompt : prompts_) {
    // The last entry is after the final norm, which the logits cover.
    for (size_t layer = 1; layer + 1 < prompt.hidden_last_position.size(); ++layer) {
      Harness harness = MakeHarness(CpuActivations::kF32, DType::kF32, static_cast<int32_t>(layer));
      harness.Forward(prompt.prompt_ids, 0);
      const auto hidden = harness.decoder().hidden();
      const std::vector<double>& expected = prompt.hidden_last_position[layer];
      ASSERT_EQ(hidden.size(), expected.size() * prompt.prompt_ids.size());
      EXPECT_LE(golden::MaxDifference(hidden.last(expected.size()), expected), kTolerance)
          << "after layer " << layer;
      ++layers_checked;
    }
  }
  EXPECT_EQ(layers_checked, checkpoint_->spec().layer_count() - 1);
}

// A token is chosen by the decoder itself and fed back, one row at a time on top of the prompt's
// KV.
TEST_P(GoldenModel, DecodingTokenByTokenGivesTheReferenceTokens) {
  Harness harness = MakeHarness(CpuActivations::kF32, DType::kF32);
  for (const Prompt& prompt : prompts_) {
    harness.Forward(prompt.prompt_ids, 0);
    auto position = static_cast<int32_t>(prompt.prompt_ids.size());
    std::vector<float> logits = harness.Logits(position - 1);
    for (size_t i = 0; i < prompt.output_ids.size(); ++i) {
      const TokenId expected = prompt.output_ids[i];
      if (prompt.margins[i] > kTolerance) {
        ASSERT_EQ(golden::ArgMax(logits), expected) << prompt.id << " output " << i;
      }
      ASSERT_NEAR(golden::LogSoftmax(logits)[expected], prompt.output_logprobs[i], kTolerance);
      harness.Forward({&expected, 1}, position++);
      logits = harness.Logits(0);
    }
  }
}

// A row's result depends on nothing but the tokens before it: the same bits however it is chunked.
TEST_P(GoldenModel, ChunksOfAnySizeGiveTheSameBits) {
  for (const CpuActivations activations : {CpuActivations::kF32, CpuActivations::kQ8}) {
    const Prompt& prompt = prompts_.back();
    const auto size = static_cast<int32_t>(prompt.prompt_ids.size());
    Harness harness = MakeHarness(activations, DType::kF16);
    harness.Forward(prompt.prompt_ids, 0);
    const std::vector<float> whole = harness.Logits(size - 1);
    for (const int32_t chunk : {1, 3, 7, 16, 33}) {
      Harness other = MakeHarness(activations, DType::kF16);
      std::vector<float> logits;
      for (int32_t begin = 0; begin < size; begin += chunk) {
        const int32_t rows = std::min(chunk, size - begin);
        other.Forward(std::span(prompt.prompt_ids).subspan(begin, rows), begin);
        logits = other.Logits(rows - 1);
      }
      EXPECT_EQ(logits, whole) << "chunks of " << chunk;
    }
  }
}

TEST_P(GoldenModel, DefaultPathStaysClose) {
  Harness harness = MakeHarness(CpuActivations::kQ8, DType::kF16);
  double sum = 0.0;
  double worst = 0.0;
  int64_t count = 0;
  int64_t other_tokens = 0;
  for (const Prompt& prompt : prompts_) {
    const std::vector<TokenId> ids = PromptAndOutput(prompt);
    harness.Forward(ids, 0);
    const size_t prompt_size = prompt.prompt_ids.size();
    for (size_t i = 0; i < prompt.output_ids.size(); ++i) {
      const std::vector<float> logits = harness.Logits(static_cast<int32_t>(prompt_size - 1 + i));
      const double difference =
          std::abs(golden::LogSoftmax(logits)[prompt.output_ids[i]] - prompt.output_logprobs[i]);
      sum += difference;
      worst = std::max(worst, difference);
      ++count;
      if (golden::ArgMax(logits) != prompt.output_ids[i]) {
        ++other_tokens;
        EXPECT_LT(prompt.margins[i], 0.5);
      }
    }
  }
  const double mean = sum / static_cast<double>(count);
  std::printf("%-20s default path: mean |dlogp| %.5f, largest %.4f, other tokens %lld of %lld\n",
              GetParam().name.c_str(), mean, worst, static_cast<long long>(other_tokens),
              static_cast<long long>(count));
  EXPECT_LE(mean, GetParam().mean_q8_max);
}

// Plain weights are computed in float there too, so only the KV in float16 differs.
constexpr double kPlain = 0.004;
constexpr double kQuantised = 0.07;

INSTANTIATE_TEST_SUITE_P(
    Tiny, GoldenModel,
    ::testing::Values(Case{"llama", kPlain}, Case{"llama-bf16", kPlain},
                      Case{"llama3-rope", kPlain}, Case{"llama3-rope-bf16", kPlain},
                      Case{"qwen2", kPlain}, Case{"qwen2-bf16", kPlain}, Case{"qwen3", kPlain},
                      Case{"qwen3-bf16", kPlain}, Case{"mistral", kPlain},
                      Case{"mistral-bf16", kPlain}, Case{"gemma3", kPlain},
                      Case{"gemma3-bf16", kPlain}, Case{"gemma2", kPlain},
                      Case{"gemma2-bf16", kPlain}, Case{"phi3", kPlain}, Case{"phi3-bf16", kPlain},
                      Case{"llama-f16", kPlain}, Case{"llama-mixed", kQuantised},
                      Case{"llama-kquants", kQuantised}, Case{"qwen2-q8_0", kQuantised},
                      Case{"gemma3-q4_0", kQuantised}),
    [](const auto& test) {
      std::string name = test.param.name;
      for (char& c : name) {
        if (c == '-') c = '_';
      }
      return name;
    });

}  // namespace
}  // namespace polysil

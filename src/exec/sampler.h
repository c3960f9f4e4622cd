// Sampler: from a row of logits to a token. The order is that of vLLM: minimum length, bias,
// penalties, temperature, min_p, top_k, top_p, each filter over what the one before it left. A
// row's result depends on its logits and its SampleRow alone. Log-probabilities are of the model's
// raw distribution. Owned by ModelRunner, on the worker thread; allocates nothing after
// construction but for results.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "exec/token_counts.h"
#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "polysil/core/sampling_params.h"
#include "polysil/core/step.h"

namespace polysil {

// What the sampler knows of a row besides its logits.
struct SampleRow {
  const SamplingParams* params = nullptr;
  std::span<const TokenId> end_token_ids;
  const TokenCounts* counts = nullptr;  // null where no penalty is set
  int32_t sequence_index = 0;
  int32_t position = 0;       // where the token will stand, prompt included
  int32_t output_tokens = 0;  // chosen before it
};

struct SampledToken {
  TokenId id = 0;
  std::optional<TokenLogprobs> logprobs;  // where SamplingParams::logprobs is set
};

class Sampler final {
 public:
  explicit Sampler(int32_t vocab_size);

  // INTERNAL where a logit is not finite or no token may be chosen; other rows are not affected.
  StatusOr<SampledToken> Sample(std::span<const float> logits, const SampleRow& row);

  // The raw log-probability of `chosen` and of the top_count best tokens, best first. INTERNAL
  // where a logit is not finite.
  StatusOr<TokenLogprobs> Logprobs(std::span<const float> logits, TokenId chosen,
                                   int32_t top_count);

 private:
  struct Candidate {
    float weight = 0.0F;
    TokenId id = 0;
  };
  // Best first: the heavier, then the lower id.
  static bool Better(const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  }

  std::span<const float> Adjust(std::span<const float> logits, const SampleRow& row);
  TokenId DrawFromAll(std::span<const float> logits, float largest, float temperature, double draw);
  TokenId DrawFiltered(std::span<const float> logits, float largest, const SamplingParams& params,
                       double draw);
  double CollectCandidates(std::span<const float> logits, float largest,
                           const SamplingParams& params);
  template <typename Use>
  void ForEachAtLeast(std::span<const float> logits, float floor, const Use& use);
  // A value that at least `count` logits reach, as high as block_maxima_ can tell.
  float FloorOfTop(int64_t count);
  Candidate LastOfTopP(std::span<Candidate> ranked, double mass_wanted) const;
  TokenLogprobs RawLogprobs(std::span<const float> logits, TokenId chosen, int32_t top_count);

  const int32_t vocab_size_;
  std::vector<float> adjusted_;        // logits after bias and penalties
  std::vector<float> weights_;         // by id
  std::vector<double> block_sums_;     // of weights_
  std::vector<float> block_maxima_;    // of the logits at hand
  std::vector<float> maxima_ranked_;   // a copy to order
  std::vector<Candidate> candidates_;  // by rising id
  std::vector<Candidate> ranked_;      // partly ordered, best first
};

}  // namespace polysil

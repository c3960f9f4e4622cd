#include "exec/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "exec/counter_random.h"
#include "exec/logit_math.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool NeedsAdjusting(const SampleRow& row) {
  return !row.params->logit_bias.empty() || row.counts != nullptr ||
         row.output_tokens < row.params->tokens_min;
}

// Far penalties must not make infinities, which would cancel to NaN later.
float Finite(float value) {
  return std::clamp(value, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max());
}

// Repetition over prompt and output: divides what is liked, multiplies what is not. Frequency and
// presence over the output alone.
float Penalise(float logit, int32_t outputs, const SamplingParams& params) {
  logit = logit > 0.0F ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  logit -= params.frequency_penalty * static_cast<float>(outputs);
  if (outputs > 0) logit -= params.presence_penalty;
  return Finite(logit);
}

TokenId FirstOf(std::span<const float> logits, float value) {
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), value) - logits.begin());
}

Status NotFinite(std::span<const float> logits) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  return Internal("the model gave a logit of {} for token {}", *bad, bad - logits.begin());
}

}  // namespace

Sampler::Sampler(int32_t vocab_size)
    : vocab_size_(vocab_size), adjusted_(vocab_size), weights_(vocab_size) {
  CHECK(vocab_size > 0, "a vocabulary of {} tokens", vocab_size);
  const int64_t blocks = (vocab_size + logit_math::kBlock - 1) / logit_math::kBlock;
  block_sums_.resize(blocks);
  block_maxima_.resize(blocks);
  maxima_ranked_.resize(blocks);
  candidates_.reserve(vocab_size);
  ranked_.reserve(vocab_size);
}

StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits, const SampleRow& row) {
  CHECK(static_cast<int32_t>(logits.size()) == vocab_size_, "{} logits for a vocabulary of {}",
        logits.size(), vocab_size_);
  if (!logit_math::AllFinite(logits)) return NotFinite(logits);
  const SamplingParams& params = *row.params;
  const std::span<const float> adjusted = NeedsAdjusting(row) ? Adjust(logits, row) : logits;
  logit_math::BlockMaxima(adjusted, block_maxima_);
  const float largest = logit_math::Max(block_maxima_);
  if (largest == -kInfinity) {
    return Internal(
        "all {} tokens of the vocabulary end the output, and {} of at least {} are "
        "chosen",
        vocab_size_, row.output_tokens, params.tokens_min);
  }
  SampledToken sampled;
  if (params.temperature == 0.0F || params.top_k == 1) {
    sampled.id = FirstOf(adjusted, largest);
  } else {
    const double draw = UniformDraw(params.seed, row.sequence_index, row.position);
    const bool filtered = params.top_p < 1.0F || params.min_p > 0.0F ||
                          (params.top_k > 0 && params.top_k < vocab_size_);
    sampled.id = filtered ? DrawFiltered(adjusted, largest, params, draw)
                          : DrawFromAll(adjusted, largest, params.temperature, draw);
  }
  if (params.logprobs) sampled.logprobs = RawLogprobs(logits, sampled.id, *params.logprobs);
  return sampled;
}

StatusOr<TokenLogprobs> Sampler::Logprobs(std::span<const float> logits, TokenId chosen,
                                          int32_t top_count) {
  if (!logit_math::AllFinite(logits)) return NotFinite(logits);
  return RawLogprobs(logits, chosen, top_count);
}

std::span<const float> Sampler::Adjust(std::span<const float> logits, const SampleRow& row) {
  const SamplingParams& params = *row.params;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [id, bias] : params.logit_bias) adjusted_[id] = Finite(adjusted_[id] + bias);
  if (row.counts != nullptr) {
    for (const TokenCounts::Entry& entry : row.counts->entries()) {
      adjusted_[entry.id] = Penalise(adjusted_[entry.id], entry.outputs, params);
    }
  }
  if (row.output_tokens < params.tokens_min) {  // last: nothing may lift them again
    for (const TokenId id : row.end_token_ids) {
      if (id >= 0 && id < vocab_size_) adjusted_[id] = -kInfinity;
    }
  }
  return adjusted_;
}

TokenId Sampler::DrawFromAll(std::span<const float> logits, float largest, float temperature,
                             double draw) {
  logit_math::Weigh(logits, largest, temperature, weights_, block_sums_);
  double total = 0.0;
  for (const double sum : block_sums_) total += sum;
  const double target = draw * total;
  size_t block = 0;
  double passed = 0.0;
  for (; block + 1 < block_sums_.size() && passed + block_sums_[block] <= target; ++block) {
    passed += block_sums_[block];
  }
  // Rounding can carry the target past the last token with weight: that one is taken then.
  TokenId chosen = FirstOf(logits, largest);
  const int64_t end = std::min<int64_t>(vocab_size_, (block + 1) * logit_math::kBlock);
  for (auto id = static_cast<int64_t>(block * logit_math::kBlock); id < end; ++id) {
    if (weights_[id] == 0.0F) continue;
    chosen = static_cast<TokenId>(id);
    passed += weights_[id];
    if (passed > target) break;
  }
  return chosen;
}

TokenId Sampler::DrawFiltered(std::span<const float> logits, float largest,
                              const SamplingParams& params, double draw) {
  double mass = CollectCandidates(logits, largest, params);
  ranked_.assign(candidates_.begin(), candidates_.end());
  std::span<Candidate> ranked = ranked_;
  // The worst candidate that stays; all of them unless a filter says otherwise.
  Candidate last{.weight = -1.0F};
  if (params.top_k > 0 && params.top_k < static_cast<int64_t>(ranked.size())) {
    std::nth_element(ranked.begin(), ranked.begin() + params.top_k - 1, ranked.end(), Better);
    ranked = ranked.first(params.top_k);
    last = ranked.back();
    mass = 0.0;
    for (const Candidate& candidate : ranked) mass += candidate.weight;
  }
  if (params.top_p < 1.0F) last = LastOfTopP(ranked, params.top_p * mass);
  double kept = 0.0;
  for (const Candidate& candidate : candidates_) {
    if (!Better(last, candidate)) kept += candidate.weight;
  }
  const double target = draw * kept;
  double passed = 0.0;
  TokenId chosen = FirstOf(logits, largest);
  for (const Candidate& candidate : candidates_) {
    if (Better(last, candidate) || candidate.weight == 0.0F) continue;
    chosen = candidate.id;
    passed += candidate.weight;
    if (passed > target) break;
  }
  return chosen;
}

// Fills candidates_ with all tokens that min_p, top_k and top_p could keep, and perhaps more of low
// weight. Returns the mass that top_p is a share of, were there no top_k.
double Sampler::CollectCandidates(std::span<const float> logits, float largest,
                                  const SamplingParams& params) {
  const auto weight_of = [&](float logit) {
    return logit_math::ExpNonPositive((logit - largest) / params.temperature);
  };
  candidates_.clear();
  double mass = 0.0;
  if (params.top_k > 0 && params.top_k < vocab_size_) {
    const float floor = FloorOfTop(params.top_k);
    ForEachAtLeast(logits, floor, [&](TokenId id) {
      const float weight = weight_of(logits[id]);
      if (weight < params.min_p) return;
      candidates_.push_back({weight, id});
      mass += weight;
    });
    return mass;
  }
  logit_math::Weigh(logits, largest, params.temperature, weights_, block_sums_);
  double least = params.min_p;
  if (params.min_p == 0.0F) {
    for (const double sum : block_sums_) mass += sum;
    // Tokens below this weigh together less than what top_p leaves out, so none of them is kept.
    least = 0.99 * (1.0 - params.top_p) * mass / vocab_size_;
  }
  const auto weight_floor = static_cast<float>(least);
  // The logit of that weight, a little lower: it only saves looking at most blocks.
  const float floor =
      largest + params.temperature * (std::log(std::max(weight_floor, 1e-36F)) * 1.001F - 0.001F);
  ForEachAtLeast(logits, floor, [&](TokenId id) {
    if (weights_[id] < weight_floor) return;
    candidates_.push_back({weights_[id], id});
    if (params.min_p > 0.0F) mass += weights_[id];
  });
  return mass;
}

// Calls `use` with each id whose logit reaches `floor`, rising. block_maxima_ are those of
// `logits`.
template <typename Use>
void Sampler::ForEachAtLeast(std::span<const float> logits, float floor, const Use& use) {
  for (size_t block = 0; block < block_maxima_.size(); ++block) {
    if (block_maxima_[block] < floor) continue;
    const auto begin = static_cast<int64_t>(block) * logit_math::kBlock;
    const int64_t end = std::min<int64_t>(vocab_size_, begin + logit_math::kBlock);
    for (int64_t id = begin; id < end; ++id) {
      if (logits[id] >= floor) use(static_cast<TokenId>(id));
    }
  }
}

float Sampler::FloorOfTop(int64_t count) {
  if (count > static_cast<int64_t>(block_maxima_.size())) return -kInfinity;
  // Each of the `count` best blocks has a logit that reaches the worst of their maxima.
  std::copy(block_maxima_.begin(), block_maxima_.end(), maxima_ranked_.begin());
  std::nth_element(maxima_ranked_.begin(), maxima_ranked_.begin() + count - 1, maxima_ranked_.end(),
                   std::greater<>());
  return maxima_ranked_[count - 1];
}

// The last candidate of the shortest best-first list whose mass reaches mass_wanted; at least the
// first. Never sorts more than a few: the masses of 8 classes per power of two say in which class
// that candidate lies, then the class is halved until it is small.
Sampler::Candidate Sampler::LastOfTopP(std::span<Candidate> ranked, double mass_wanted) const {
  constexpr size_t kSmall = 64;
  constexpr size_t kClasses = 1024;  // of weights in [0, 1]: exponent and three bits behind it
  const auto class_of = [](const Candidate& candidate) {
    return std::bit_cast<uint32_t>(candidate.weight) >> 20;
  };
  std::array<double, kClasses> masses = {};
  for (const Candidate& candidate : ranked) masses[class_of(candidate)] += candidate.weight;
  double before = 0.0;
  size_t chosen = kClasses - 1;
  for (; chosen > 0 && before + masses[chosen] < mass_wanted; --chosen) before += masses[chosen];
  const auto end = std::partition(ranked.begin(), ranked.end(), [&](const Candidate& candidate) {
    return class_of(candidate) == chosen;
  });
  // Rounding can leave the mass a hair short: then all of them are kept.
  if (end == ranked.begin()) return *std::max_element(ranked.begin(), ranked.end(), Better);
  ranked = ranked.first(end - ranked.begin());
  while (ranked.size() > kSmall) {
    const size_t half = ranked.size() / 2;
    std::nth_element(ranked.begin(), ranked.begin() + half, ranked.end(), Better);
    double mass = 0.0;
    for (const Candidate& candidate : ranked.first(half)) mass += candidate.weight;
    if (before + mass >= mass_wanted) {
      ranked = ranked.first(half);
    } else {
      before += mass;
      ranked = ranked.subspan(half);
    }
  }
  std::sort(ranked.begin(), ranked.end(), Better);
  for (const Candidate& candidate : ranked) {
    before += candidate.weight;
    if (before >= mass_wanted) return candidate;
  }
  return ranked.back();
}

TokenLogprobs Sampler::RawLogprobs(std::span<const float> logits, TokenId chosen,
                                   int32_t top_count) {
  logit_math::BlockMaxima(logits, block_maxima_);
  const float largest = logit_math::Max(block_maxima_);
  const double normaliser = logit_math::LogSumExp(logits, largest);
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[id]) - normaliser);
  };
  TokenLogprobs out;
  out.chosen = {chosen, logprob(chosen)};
  if (top_count == 0) return out;
  candidates_.clear();
  ForEachAtLeast(logits, FloorOfTop(top_count), [&](TokenId id) {
    candidates_.push_back({logits[id], id});
  });
  const size_t count = std::min<size_t>(top_count, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + count, candidates_.end(), Better);
  for (size_t i = 0; i < count; ++i) {
    out.top.push_back({candidates_[i].id, logprob(candidates_[i].id)});
  }
  return out;
}

}  // namespace polysil

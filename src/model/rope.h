// Rope frequencies from what checkpoints say: base, rotated dimensions and one of the published
// ways of stretching them. Builds the RopeSpec that the kernels use; keeps nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/status.h"
#include "polysil/core/model_spec.h"

namespace polysil {

enum class RopeScaling {
  kNone,
  kLinear,   // every frequency divided by `factor`
  kLlama3,   // long waves divided by `factor`, short ones kept, those between blended
  kFactors,  // divided one by one: GGUF's rope_freqs.weight and longrope's short or long list
};

// The scaling that a checkpoint names ("linear", "llama3", "longrope", "default", ...).
// UNIMPLEMENTED with the name for those that are not there: yarn, dynamic, mrope and whatever
// comes.
StatusOr<RopeScaling> RopeScalingFromName(std::string_view name);

struct RopeParams {
  RopePairing pairing = RopePairing::kHalves;
  int32_t dims = 0;  // even
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                // kLinear, kLlama3
  double low_frequency_factor = 1.0;  // kLlama3
  double high_frequency_factor = 4.0;
  double original_context = 0.0;
  std::vector<float> factors;  // kFactors: [dims / 2]
  double magnitude = 1.0;
};

// INVALID_ARGUMENT for values that make no frequency (zero, negative, not finite, contradictory).
StatusOr<RopeSpec> BuildRope(const RopeParams& params);

// longrope's magnitude where the checkpoint gives none: sqrt(1 + ln(stretch) /
// ln(original_context)), 1 where the context is not stretched.
double LongRopeMagnitude(double stretch, double original_context);

}  // namespace polysil

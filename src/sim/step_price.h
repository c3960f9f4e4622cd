// StepPrice: what a step costs on a simulated device. A value.
#pragma once

#include <cstdint>

namespace polysil {

// What of a step decides how long it takes.
struct StepShape {
  int64_t tokens = 0;  // rows, padded up to a bucket where the device has buckets
  int64_t context_tokens =
      0;  // KV positions read: the sum of the sequences' lengths after the step
  int64_t sequences = 0;
  int64_t block_copies = 0;
};

// Linear, which is what devices are to a good approximation.
struct StepPrice {
  double step_ns = 1e6;
  double token_ns = 1e4;
  double context_token_ns = 1.0;
  double sequence_ns = 1e4;
  double block_copy_ns = 1e4;

  int64_t DurationNs(const StepShape& shape) const {
    return static_cast<int64_t>(step_ns + token_ns * static_cast<double>(shape.tokens) +
                                context_token_ns * static_cast<double>(shape.context_tokens) +
                                sequence_ns * static_cast<double>(shape.sequences) +
                                block_copy_ns * static_cast<double>(shape.block_copies));
  }
};

}  // namespace polysil

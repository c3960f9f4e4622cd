// StepBuilder: the arithmetic of one step. Which sequences take part, with how many rows, so that
// the executor's StepLimits hold. It knows no blocks and no order; Scheduler offers sequences in
// order. Owned by Scheduler, on the engine thread; used again for every step without allocating.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sequence.h"
#include "polysil/base/status.h"
#include "polysil/core/step.h"
#include "sched/step_cost.h"

namespace polysil {

// Limits under which no step, or no progress, is possible. INVALID_ARGUMENT with the values.
Status Validate(const StepLimits& limits);

// A row alone is a decode, or the last row of a prompt; more than one is prefill.
enum class StepKind { kMixed, kDecodeOnly, kPrefillOnly };

class StepBuilder final {
 public:
  struct Part {
    Sequence* sequence;
    int32_t rows;
  };

  // The limits must have passed Validate.
  explicit StepBuilder(StepLimits limits);

  void Start(StepKind kind);
  // How many rows of a sequence with `rows_remaining` fit into the step now; 0: none.
  int32_t RowsFitting(int32_t rows_remaining) const;
  // CHECKs that they fit.
  void Add(Sequence& sequence, int32_t rows);
  // The executor pads rows up to a bucket. A step that would leave more than half of its bucket
  // empty gives up prefill rows down to the next smaller bucket; they come with a later step.
  void TrimToBucket();

  // What the executor works on: the step as it is, or with so many rows more of a sequence.
  StepWork work() const { return Padded(work_); }
  StepWork WorkWith(const Sequence& sequence, int32_t rows) const {
    return Padded(work_.With(sequence.tokens_scheduled(), rows));
  }

  std::span<const Part> parts() const { return parts_; }
  int32_t tokens_total() const { return tokens_total_; }
  // What the limits and buckets allow at most, whatever the step.
  int32_t tokens_max() const { return tokens_max_; }
  int32_t sequences_max() const { return sequences_max_; }
  const StepLimits& limits() const { return limits_; }

 private:
  void DropRows(int32_t rows);
  StepWork Padded(StepWork work) const;

  const StepLimits limits_;
  const int32_t tokens_max_;
  const int32_t sequences_max_;
  StepKind kind_ = StepKind::kMixed;
  std::vector<Part> parts_;
  StepWork work_;
  int32_t tokens_total_ = 0;
  int32_t prefill_sequences_ = 0;
};

}  // namespace polysil

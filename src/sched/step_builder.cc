#include "sched/step_builder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/seeded_bug.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

Status ValidateBuckets(std::span<const int32_t> buckets, std::string_view name) {
  int32_t previous = 0;
  for (const int32_t bucket : buckets) {
    if (bucket <= previous) {
      return InvalidArgument("{} holds {} after {}, must rise from 1", name, bucket, previous);
    }
    previous = bucket;
  }
  return OkStatus();
}

int32_t Cap(int32_t limit, std::span<const int32_t> buckets) {
  return buckets.empty() ? limit : std::min(limit, buckets.back());
}

}  // namespace

Status Validate(const StepLimits& limits) {
  if (limits.tokens_max < 1 || limits.sequences_max < 1 || limits.prefill_sequences_max < 1 ||
      limits.steps_in_flight_max < 1) {
    return InvalidArgument(
        "step limits are tokens_max {}, sequences_max {}, prefill_sequences_max {}, "
        "steps_in_flight_max {}, each must be 1 or more",
        limits.tokens_max, limits.sequences_max, limits.prefill_sequences_max,
        limits.steps_in_flight_max);
  }
  RETURN_IF_ERROR(ValidateBuckets(limits.token_buckets, "token_buckets"));
  RETURN_IF_ERROR(ValidateBuckets(limits.sequence_buckets, "sequence_buckets"));
  const int32_t tokens_max = Cap(limits.tokens_max, limits.token_buckets);
  if (!limits.mixes_prefill_and_decode && tokens_max < 2) {
    return InvalidArgument("a prefill step takes at most {} token, needs 2", tokens_max);
  }
  return OkStatus();
}

StepBuilder::StepBuilder(StepLimits limits)
    : limits_(std::move(limits)),
      tokens_max_(Cap(limits_.tokens_max, limits_.token_buckets)),
      sequences_max_(Cap(limits_.sequences_max, limits_.sequence_buckets)) {
  const Status status = Validate(limits_);
  CHECK(status.ok(), "{}", Message(status));
}

void StepBuilder::Start(StepKind kind) {
  kind_ = kind;
  parts_.clear();
  work_ = {};
  tokens_total_ = 0;
  prefill_sequences_ = 0;
}

int32_t StepBuilder::RowsFitting(int32_t rows_remaining) const {
  if (static_cast<int32_t>(parts_.size()) >= sequences_max_) return 0;
  const int32_t tokens_max = tokens_max_ + (SEEDED_BUG(budget_off_by_one) ? 1 : 0);
  const int32_t rows = std::min(rows_remaining, tokens_max - tokens_total_);
  if (rows <= 0) return 0;
  if (rows > 1 && prefill_sequences_ >= limits_.prefill_sequences_max &&
      !SEEDED_BUG(forget_the_prefill_limit)) {
    return 0;
  }
  if (rows > 1 && kind_ == StepKind::kDecodeOnly) return 0;
  if (rows == 1 && kind_ == StepKind::kPrefillOnly) return 0;
  return rows;
}

void StepBuilder::Add(Sequence& sequence, int32_t rows) {
  CHECK(rows > 0 && rows <= RowsFitting(sequence.rows_remaining()), "{} rows do not fit", rows);
  parts_.push_back(Part{&sequence, rows});
  work_ = work_.With(sequence.tokens_scheduled(), rows);
  tokens_total_ += rows;
  prefill_sequences_ += rows > 1 ? 1 : 0;
}

void StepBuilder::TrimToBucket() {
  const std::vector<int32_t>& buckets = limits_.token_buckets;
  if (buckets.empty()) return;
  const auto bucket = std::ranges::lower_bound(buckets, tokens_total_);
  CHECK(bucket != buckets.end(), "{} tokens exceed every bucket", tokens_total_);
  if (bucket == buckets.begin() || tokens_total_ * int64_t{2} >= *bucket) return;
  const int32_t smaller = *(bucket - 1);
  const int32_t rows_alone = static_cast<int32_t>(
      std::ranges::count_if(parts_, [](const Part& part) { return part.rows == 1; }));
  // Prefill must go on: rows of it have to remain, in a step without decodes at least two.
  if (smaller <= rows_alone || (kind_ == StepKind::kPrefillOnly && smaller < 2)) return;
  DropRows(tokens_total_ - smaller);
}

void StepBuilder::DropRows(int32_t rows) {
  for (size_t i = parts_.size(); i-- > 0 && rows > 0;) {
    Part& part = parts_[i];
    if (part.rows == 1) continue;
    int32_t dropped = std::min(rows, part.rows);
    // A row alone is not prefill any more.
    if (kind_ == StepKind::kPrefillOnly && part.rows - dropped == 1) ++dropped;
    part.rows -= dropped;
    tokens_total_ -= dropped;
    rows -= dropped;
  }
  std::erase_if(parts_, [](const Part& part) { return part.rows == 0; });
  work_ = {};
  for (const Part& part : parts_) {
    work_ = work_.With(part.sequence->tokens_scheduled(), part.rows);
  }
}

StepWork StepBuilder::Padded(StepWork work) const {
  const std::vector<int32_t>& buckets = limits_.token_buckets;
  const auto bucket = std::ranges::lower_bound(buckets, work.rows);
  if (bucket != buckets.end()) work.rows = *bucket;
  return work;
}

}  // namespace polysil

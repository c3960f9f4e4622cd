// LatencyHistogram: how often a time was seen, in buckets about 3 % wide, so that percentiles of
// millions of values need no list of them. A value.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace polysil {

class LatencyHistogram final {
 public:
  void Observe(int64_t ns) {
    const size_t bucket = BucketOf(ns);
    if (bucket >= counts_.size()) counts_.resize(bucket + 1);
    ++counts_[bucket];
    ++total_;
  }
  void Add(const LatencyHistogram& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
  }
  int64_t total() const { return total_; }
  // At least this share of the values is at most so many ns (the upper end of a bucket). 0: none.
  int64_t PercentileNs(double share) const {
    int64_t left = static_cast<int64_t>(share * static_cast<double>(total_) + 0.999999);
    for (size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      left -= counts_[bucket];
      if (left <= 0 && total_ > 0) return UpperNs(bucket);
    }
    return 0;
  }

 private:
  // 32 buckets for each doubling from 2^kSmallestBits ns on; all below is one bucket each ns-step.
  static constexpr int kFractionBits = 5;
  static constexpr int kSmallestBits = 10;

  static size_t BucketOf(int64_t ns) {
    const uint64_t value = ns > 0 ? static_cast<uint64_t>(ns) >> kSmallestBits : 0;
    constexpr uint64_t kFractions = uint64_t{1} << kFractionBits;
    if (value < kFractions) return static_cast<size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - 1 - kFractionBits;
    return static_cast<size_t>((static_cast<uint64_t>(shift) << kFractionBits) + (value >> shift));
  }
  static int64_t UpperNs(size_t bucket) {
    constexpr size_t kFractions = size_t{1} << kFractionBits;
    if (bucket < kFractions) return static_cast<int64_t>((bucket + 1) << kSmallestBits);
    const size_t shift = bucket / kFractions - 1;
    const size_t value = bucket % kFractions + kFractions;
    return static_cast<int64_t>((value + 1) << (shift + kSmallestBits));
  }

  std::vector<uint32_t> counts_;
  int64_t total_ = 0;
};

}  // namespace polysil

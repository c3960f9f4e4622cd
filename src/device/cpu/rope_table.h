// RopeTable: cosines and sines of the rows of a step. Every layer of a step turns by the same
// angles, so the last few sets are kept and found again by their inputs. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "polysil/core/model_spec.h"

namespace polysil {

class RopeTable final {
 public:
  struct Angles {
    int32_t pairs = 0;
    std::vector<float> cosines;  // [rows, pairs]
    std::vector<float> sines;
  };

  // Valid until the next call.
  const Angles& Find(std::span<const int32_t> positions, const RopeSpec& rope);

 private:
  struct Entry {
    std::vector<int32_t> positions;
    std::vector<float> inv_freqs;
    float magnitude = 0.0F;
    Angles angles;
  };
  static constexpr int32_t kEntries = 4;  // more ropes than any known model has

  Entry entries_[kEntries];
  int32_t next_ = 0;  // the entry to give up next
};

}  // namespace polysil

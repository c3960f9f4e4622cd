#include "device/cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace polysil {

const RopeTable::Angles& RopeTable::Find(std::span<const int32_t> positions, const RopeSpec& rope) {
  for (const Entry& entry : entries_) {
    if (entry.magnitude == rope.magnitude && std::ranges::equal(entry.positions, positions) &&
        entry.inv_freqs == rope.inv_freqs) {
      return entry.angles;
    }
  }
  Entry& entry = entries_[next_];
  next_ = (next_ + 1) % kEntries;
  entry.positions.assign(positions.begin(), positions.end());
  entry.inv_freqs = rope.inv_freqs;
  entry.magnitude = rope.magnitude;
  const size_t pairs = rope.inv_freqs.size();
  entry.angles.pairs = static_cast<int32_t>(pairs);
  entry.angles.cosines.resize(positions.size() * pairs);
  entry.angles.sines.resize(positions.size() * pairs);
  for (size_t r = 0; r < positions.size(); ++r) {
    for (size_t i = 0; i < pairs; ++i) {
      // In double: a float angle is off by half a milliradian at position 8192.
      const double angle = static_cast<double>(positions[r]) * rope.inv_freqs[i];
      entry.angles.cosines[r * pairs + i] =
          static_cast<float>(std::cos(angle) * static_cast<double>(rope.magnitude));
      entry.angles.sines[r * pairs + i] =
          static_cast<float>(std::sin(angle) * static_cast<double>(rope.magnitude));
    }
  }
  return entry.angles;
}

}  // namespace polysil

#include "sim/timeline.h"

#include <utility>

namespace polysil {

void Timeline::ObserveTick(int64_t now_ns, const EngineStats& stats) {
  Bin& bin = BinAt(now_ns);
  ++bin.ticks;
  bin.blocks_used += static_cast<double>(stats.kv_blocks_used);
  bin.blocks_cached += static_cast<double>(stats.kv_blocks_cached);
  bin.running += static_cast<double>(stats.requests_running);
  bin.waiting += static_cast<double>(stats.requests_waiting);
}

Timeline::Bin& Timeline::BinAt(int64_t now_ns) {
  while (now_ns / bin_ns_ >= static_cast<int64_t>(kBinsMax)) Halve();
  const size_t index = static_cast<size_t>(now_ns / bin_ns_);
  if (index >= bins_.size()) bins_.resize(index + 1);
  return bins_[index];
}

void Timeline::Halve() {
  for (size_t i = 0; i < bins_.size(); i += 2) {
    Bin bin = std::move(bins_[i]);
    if (i + 1 < bins_.size()) {
      const Bin& other = bins_[i + 1];
      bin.ticks += other.ticks;
      bin.blocks_used += other.blocks_used;
      bin.blocks_cached += other.blocks_cached;
      bin.running += other.running;
      bin.waiting += other.waiting;
      bin.time_to_first_token.Add(other.time_to_first_token);
      bin.inter_token.Add(other.inter_token);
    }
    bins_[i / 2] = std::move(bin);
  }
  bins_.resize((bins_.size() + 1) / 2);
  bin_ns_ *= 2;
}

}  // namespace polysil

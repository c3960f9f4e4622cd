// Timeline: how a simulation went over virtual time, in at most kBinsMax bins of equal width that
// double when time runs past them. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "polysil/engine/engine.h"
#include "sim/latency_histogram.h"

namespace polysil {

class Timeline final {
 public:
  static constexpr size_t kBinsMax = 240;

  struct Bin {
    // Sums over the ticks of the bin.
    int64_t ticks = 0;
    double blocks_used = 0.0;
    double blocks_cached = 0.0;
    double running = 0.0;
    double waiting = 0.0;
    LatencyHistogram time_to_first_token;  // of first tokens in the bin
    LatencyHistogram inter_token;

    double MeanOf(double sum) const { return ticks > 0 ? sum / static_cast<double>(ticks) : 0.0; }
  };

  void ObserveTick(int64_t now_ns, const EngineStats& stats);
  void ObserveFirstToken(int64_t now_ns, int64_t latency_ns) {
    BinAt(now_ns).time_to_first_token.Observe(latency_ns);
  }
  void ObserveGap(int64_t now_ns, int64_t latency_ns) {
    BinAt(now_ns).inter_token.Observe(latency_ns);
  }

  std::span<const Bin> bins() const { return bins_; }
  int64_t bin_ns() const { return bin_ns_; }

 private:
  Bin& BinAt(int64_t now_ns);
  void Halve();

  std::vector<Bin> bins_;
  int64_t bin_ns_ = 1'000'000;
};

}  // namespace polysil

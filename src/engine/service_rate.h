// ServiceRate: how many requests finish per second, over the last ten to twenty seconds. A value;
// it is handed the time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace polysil {

class ServiceRate final {
 public:
  explicit ServiceRate(int64_t now_ns) : previous_{now_ns, 0}, current_{now_ns, 0} {}

  // finished_total: since the start. Times must not go back.
  void Observe(int64_t now_ns, uint64_t finished_total) {
    if (now_ns - current_.start_ns >= kWindowNs) {
      // After a pause the old window says nothing about now.
      const bool paused = now_ns - current_.start_ns >= 2 * kWindowNs;
      previous_ = paused ? Window{now_ns - kWindowNs, finished_total_} : current_;
      current_ = Window{now_ns, finished_total_};
    }
    finished_total_ = finished_total;
  }

  // Where none has finished yet, as if one were about to.
  double PerSecond(int64_t now_ns) const {
    const uint64_t finished = std::max<uint64_t>(1, finished_total_ - previous_.finished_total);
    const int64_t elapsed_ns = std::max<int64_t>(1'000'000, now_ns - previous_.start_ns);
    return static_cast<double>(finished) * 1e9 / static_cast<double>(elapsed_ns);
  }

 private:
  static constexpr int64_t kWindowNs = 10'000'000'000;

  struct Window {
    int64_t start_ns;
    uint64_t finished_total;  // before it
  };

  Window previous_;
  Window current_;
  uint64_t finished_total_ = 0;
};

}  // namespace polysil

// SimClock: time that moves only when the simulation says so. One thread.
#pragma once

#include <cstdint>

#include "polysil/base/check.h"
#include "polysil/base/clock.h"

namespace polysil {

class SimClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_; }
  void MoveTo(int64_t now_ns) {
    CHECK(now_ns >= now_ns_, "time went from {} back to {}", now_ns_, now_ns);
    now_ns_ = now_ns;
  }

 private:
  int64_t now_ns_ = 0;
};

}  // namespace polysil

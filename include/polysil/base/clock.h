// Clock: where time comes from. Decision code never reads a clock; it is handed `now_ns`.
#pragma once

#include <cstdint>

namespace polysil {

// Thread-safe. Monotonic: never goes back.
class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary fixed point of this process.
  virtual int64_t NowNs() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  int64_t NowNs() const override;
};

}  // namespace polysil

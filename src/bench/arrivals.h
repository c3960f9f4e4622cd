// Arrivals: when requests of an open loop are due: independent gaps with a mean of 1 / rate. A
// function of the seed, whatever the server does. A value.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace polysil {

class Arrivals final {
 public:
  // `rate` a second. Gaps have a Gamma distribution of shape `burstiness`: 1 is Poisson, below 1
  // arrivals come in bursts, above 1 they are smoother.
  Arrivals(double rate, double burstiness, uint64_t seed)
      : shape_(burstiness), scale_s_(1.0 / (rate * burstiness)), random_(seed) {}

  // Nanoseconds after the beginning; the first is due at once.
  int64_t next_ns() const { return static_cast<int64_t>(next_s_ * 1e9); }
  void Advance() { next_s_ += random_.Gamma(shape_, scale_s_); }

 private:
  double shape_;
  double scale_s_;
  Random random_;
  double next_s_ = 0.0;
};

}  // namespace polysil

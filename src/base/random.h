// Random: a stream of draws that its seed determines, and Mix, a draw as a function of its
// arguments. The same on every machine but for the last bits of std::log. Not for secrets. A value;
// one thread at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "polysil/base/check.h"

namespace polysil {

// splitmix64's finisher over two words: every bit of either turns half the bits of the result.
inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

class Random final {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  uint64_t Next() { return Mix(seed_, ++draws_); }
  // Uniform in [low, high]. The bias of the remainder is far below what anybody could count.
  int32_t Between(int32_t low, int32_t high) {
    return static_cast<int32_t>(Between(int64_t{low}, int64_t{high}));
  }
  int64_t Between(int64_t low, int64_t high) {
    CHECK(low <= high, "nothing lies between {} and {}", low, high);
    return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  // Uniform in [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  bool Chance(double p) { return Unit() < p; }
  double Exponential(double mean) { return -mean * std::log(1.0 - Unit()); }
  // Mean shape * scale, variance shape * scale^2. Marsaglia and Tsang, 2000.
  double Gamma(double shape, double scale) {
    if (shape < 1.0) return Gamma(shape + 1.0, scale) * std::pow(1.0 - Unit(), 1.0 / shape);
    const double d = shape - 1.0 / 3.0;
    const double c = 1.0 / std::sqrt(9.0 * d);
    while (true) {
      const double x = Normal();
      const double v = std::pow(1.0 + c * x, 3.0);
      if (v <= 0.0) continue;
      if (std::log(1.0 - Unit()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * scale;
    }
  }
  template <typename T>
  T Pick(std::initializer_list<T> values) {
    return values.begin()[Next() % values.size()];
  }

 private:
  // Mean 0, variance 1. Box and Muller's, one of the pair.
  double Normal() {
    constexpr double kTwoPi = 6.283185307179586;
    return std::sqrt(-2.0 * std::log(1.0 - Unit())) * std::cos(kTwoPi * Unit());
  }

  uint64_t seed_;
  uint64_t draws_ = 0;
};

}  // namespace polysil

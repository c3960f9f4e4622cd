#include "bench/measurements.h"

#include <algorithm>
#include <cmath>

namespace polysil {

double Measurements::Mean() const {
  if (values_.empty()) return 0.0;
  double sum = 0.0;
  for (const float value : values_) sum += value;
  return sum / static_cast<double>(values_.size());
}

double Measurements::Deviation() const {
  if (values_.empty()) return 0.0;
  const double mean = Mean();
  double squares = 0.0;
  for (const float value : values_) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values_.size()));
}

double Measurements::Percentile(double percent) {
  if (values_.empty()) return 0.0;
  Sort();
  const double place = percent / 100.0 * static_cast<double>(values_.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values_.size() - 1);
  const double share = place - static_cast<double>(below);
  return values_[below] + share * (static_cast<double>(values_[above]) - values_[below]);
}

double Measurements::Max() {
  return Percentile(100.0);
}

void Measurements::Sort() {
  if (!sorted_) std::sort(values_.begin(), values_.end());
  sorted_ = true;
}

}  // namespace polysil

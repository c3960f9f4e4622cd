// Measurements: all values of one quantity, and what is said of them. A value; one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace polysil {

class Measurements final {
 public:
  void Add(float value) {
    values_.push_back(value);
    sorted_ = false;
  }
  size_t count() const { return values_.size(); }
  // All of these are 0 where there is none.
  double Mean() const;
  double Deviation() const;  // standard deviation of the values themselves
  // Between the two nearest values in proportion, as numpy does it. 0 <= percent <= 100. Sorts.
  double Percentile(double percent);
  double Max();

 private:
  void Sort();

  std::vector<float> values_;
  bool sorted_ = true;
};

}  // namespace polysil

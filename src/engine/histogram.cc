#include <algorithm>

#include "polysil/base/check.h"
#include "polysil/engine/engine.h"

namespace polysil {

void Histogram::Observe(double value) {
  CHECK(counts.size() == bounds.size() + 1, "{} counts for {} bounds", counts.size(),
        bounds.size());
  const auto bound = std::ranges::lower_bound(bounds, value);
  ++counts[static_cast<size_t>(bound - bounds.begin())];
  sum += value;
}

}  // namespace polysil

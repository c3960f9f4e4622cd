#include "sched/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace polysil {
namespace {

// Of what a size of steps remembers, with each further one of that size.
constexpr double kMemory = 31.0 / 32.0;
constexpr double kSpreadMemory = 15.0 / 16.0;
// Relative to a term's own weight: decides between terms that always come together, as rows and
// sequences of decodes do, and is nothing against what is known.
constexpr double kRidge = 1e-7;
// From so many on, a step that is told to be much quicker than predicted counts as one twice as
// quick. Slow ones need no such bound: as a share of their own duration they weigh little.
constexpr int64_t kObservationsTrusted = 8;

}  // namespace

StepCostModel::Terms StepCostModel::TermsOf(const StepWork& work) {
  return {1.0, static_cast<double>(work.rows), static_cast<double>(work.positions),
          static_cast<double>(work.sequences)};
}

void StepCostModel::Observe(const StepWork& work, int64_t duration_ns) {
  if (duration_ns <= 0 || work.rows <= 0) return;
  double duration = static_cast<double>(duration_ns);
  const double predicted = PredictNs(work);
  if (observations_ >= kObservationsTrusted) {
    const double error = std::min(std::abs(duration / predicted - 1.0), 1.0);
    spread_ = kSpreadMemory * spread_ + (1.0 - kSpreadMemory) * error;
    duration = std::max(duration, predicted / 2);
  }
  ++observations_;
  const size_t size =
      std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(work.rows))), kSizes);
  Moments& moments = moments_[size - 1];
  const Terms terms = TermsOf(work);
  for (size_t i = 0; i < kTerms; ++i) {
    const double x = terms[i] / duration;
    moments.sums[i] = kMemory * moments.sums[i] + x;
    for (size_t j = 0; j < kTerms; ++j) {
      moments.products[i][j] = kMemory * moments.products[i][j] + x * (terms[j] / duration);
    }
  }
  Solve();
}

double StepCostModel::PredictNs(const StepWork& work) const {
  const Terms terms = TermsOf(work);
  double ns = 0.0;
  for (size_t i = 0; i < kTerms; ++i) ns += cost_[i] * terms[i];
  return ns;
}

// Least squares by Gaussian elimination; while a term comes out negative, the most negative one is
// left out and the rest solved again.
void StepCostModel::Solve() {
  Moments total;
  for (const Moments& moments : moments_) {
    for (size_t i = 0; i < kTerms; ++i) {
      total.sums[i] += moments.sums[i];
      for (size_t j = 0; j < kTerms; ++j) total.products[i][j] += moments.products[i][j];
    }
  }
  std::array<bool, kTerms> out{};
  while (true) {
    auto a = total.products;
    Terms b = total.sums;
    for (size_t i = 0; i < kTerms; ++i) {
      a[i][i] += kRidge * total.products[i][i];
      if (!out[i]) continue;
      for (size_t j = 0; j < kTerms; ++j) a[i][j] = a[j][i] = i == j ? 1.0 : 0.0;
      b[i] = 0.0;
    }
    // Positive definite: every pivot is.
    for (size_t k = 0; k < kTerms; ++k) {
      for (size_t i = k + 1; i < kTerms; ++i) {
        const double factor = a[i][k] / a[k][k];
        for (size_t j = k; j < kTerms; ++j) a[i][j] -= factor * a[k][j];
        b[i] -= factor * b[k];
      }
    }
    size_t worst = kTerms;
    double worst_share = 0.0;
    for (size_t i = kTerms; i-- > 0;) {
      for (size_t j = i + 1; j < kTerms; ++j) b[i] -= a[i][j] * b[j];
      b[i] /= a[i][i];
      const double share = b[i] * std::sqrt(total.products[i][i]);
      if (share >= worst_share) continue;
      worst = i;
      worst_share = share;
    }
    cost_ = b;
    if (worst == kTerms) return;
    out[worst] = true;
  }
}

}  // namespace polysil

// StepCostModel: how long a step takes on the device, learned from the steps that came back. A line
// through what a step holds: so much for any step, for each row, for each position that a row looks
// at, for each sequence; none of them negative. It knows no clock: durations are handed in. Owned
// by Scheduler, on the engine thread; a value, without allocations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace polysil {

// What a step holds, as far as its duration depends on it.
struct StepWork {
  int64_t rows = 0;       // with those that the executor pads to
  int64_t positions = 0;  // looked at by attention, over all rows
  int64_t sequences = 0;

  // `rows_more` rows of one sequence, from position `first` on.
  StepWork With(int64_t first, int64_t rows_more) const {
    return {.rows = rows + rows_more,
            .positions = positions + rows_more * first + rows_more * (rows_more + 1) / 2,
            .sequences = sequences + 1};
  }
};

class StepCostModel final {
 public:
  // Durations of 0 and less say nothing and are passed over.
  void Observe(const StepWork& work, int64_t duration_ns);
  // 0 while nothing was observed. Never negative, and never less for more work.
  double PredictNs(const StepWork& work) const;
  bool knows() const { return observations_ > 0; }
  // How far steps lately were from what was predicted, as a share of it: in [0, 1].
  double spread() const { return spread_; }

 private:
  static constexpr size_t kTerms = 4;
  // Steps of 1, 2..3, 4..7, ... rows.
  static constexpr size_t kSizes = 20;

  using Terms = std::array<double, kTerms>;  // constant, rows, positions, sequences
  // Sums over observations (x, y), each divided by its y: errors count as a share of the duration.
  struct Moments {
    std::array<Terms, kTerms> products{};  // of x with x
    Terms sums{};                          // of x
  };

  static Terms TermsOf(const StepWork& work);
  void Solve();

  // A memory for each size of steps, so that an hour of decodes does not wash away what a prefill
  // costs.
  std::array<Moments, kSizes> moments_{};
  Terms cost_{};  // ns for one of each term
  int64_t observations_ = 0;
  double spread_ = 0.0;
};

}  // namespace polysil

#pragma once
#include <cstdint>
#include <span>

namespace strata::launcher {

// Mean and standard deviation of the finite values, and the number of others, for values that come in pieces. Each
// piece takes two passes and is then merged (Chan, Golub & LeVeque 1979), because a running sum of squares would
// cancel.
class Statistics {
 public:
  void add(std::span<const float> piece);

  double mean() const { return mean_; }
  double deviation() const;
  std::uint64_t non_finite() const { return non_finite_; }

 private:
  double mean_ = 0, squares_ = 0;  // squares_: the sum of squared deviations from the mean
  std::uint64_t finite_ = 0, non_finite_ = 0;
};

}  // namespace strata::launcher

#include "launcher/inspect/statistics.h"

#include <cmath>

namespace strata::launcher {

void Statistics::add(std::span<const float> piece) {
  std::uint64_t finite = 0;
  double sum = 0, squares = 0;
  for (const float x : piece)
    if (std::isfinite(x)) {
      ++finite;
      sum += x;
    }
  non_finite_ += piece.size() - finite;
  if (finite == 0) return;
  const auto n = static_cast<double>(finite), before = static_cast<double>(finite_);
  const double mean = sum / n;
  for (const float x : piece)
    if (std::isfinite(x)) squares += (x - mean) * (x - mean);
  const double apart = mean - mean_;
  squares_ += squares + apart * apart * before * n / (before + n);
  mean_ += apart * n / (before + n);
  finite_ += finite;
}

double Statistics::deviation() const {
  return finite_ ? std::sqrt(squares_ / static_cast<double>(finite_)) : 0;
}

}  // namespace strata::launcher

#include "runtime/data/mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace strata::runtime {

// Shares are integers: the weights times 2^31, divided by their sum. From here on nothing is rounded.
Mix::Mix(std::span<const double> weights) {
  STRATA_CHECK(!weights.empty());
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const double weight : weights)
    share_.push_back(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(weight / sum * 0x1p31))));
  rest_ = share_;
  std::partial_sum(rest_.rbegin(), rest_.rend(), rest_.rbegin());
}

// n * share / rest, rounded to nearest, in parts: the product itself may have more than 64 bits.
std::uint64_t Mix::taken(std::size_t source, std::uint64_t n) const {
  const std::uint64_t share = share_[source], rest = rest_[source];
  return n / rest * share + (n % rest * share + rest / 2) / rest;
}

Mix::Place Mix::at(std::uint64_t position) const {
  std::uint64_t left = position;
  for (std::size_t source = 0;; ++source) {
    const std::uint64_t before = taken(source, left);
    if (source + 1 == share_.size() || taken(source, left + 1) > before) return {source, before};
    left -= before;
  }
}

std::uint64_t Mix::count(std::size_t source, std::uint64_t positions) const {
  for (std::size_t earlier = 0; earlier < source; ++earlier) positions -= taken(earlier, positions);
  return taken(source, positions);
}

}  // namespace strata::runtime

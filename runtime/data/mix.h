#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata::runtime {

// Decides from which of several sources the sequence at a position comes. It is a closed form, so that a run can start
// anywhere (docs/formats.md, "Sources"). In the first p positions each source has its share of p, to within one half
// for itself and one for each source before it. Part of the numerics contract: it must never change.
class Mix {
 public:
  // `weights`: each above 0.
  explicit Mix(std::span<const double> weights);

  struct Place {
    std::size_t source;
    std::uint64_t index;  // counts the source's own positions
  };
  Place at(std::uint64_t position) const;
  // The number of the source's positions among the first `positions`.
  std::uint64_t count(std::size_t source, std::uint64_t positions) const;

 private:
  // The number of positions that the source takes of the first n left for it and the sources after it.
  std::uint64_t taken(std::size_t source, std::uint64_t n) const;

  std::vector<std::uint64_t> share_, rest_;  // for each source; for it and those after it
};

}  // namespace strata::runtime

#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata::runtime {

// Which of several sources the sequence at a position comes from: a closed form, so that a run can stand anywhere
// (docs/formats.md, "Sources"). Of the first p positions each source has its share of p, give or take a half for itself
// and for each source before it. Part of the numerics contract: it must never change.
class Mix {
 public:
  // weights: above 0.
  explicit Mix(std::span<const double> weights);

  struct Place {
    std::size_t source;
    std::uint64_t index;  // counts the source's own positions
  };
  Place at(std::uint64_t position) const;
  // Of the first `positions`: those of the source.
  std::uint64_t count(std::size_t source, std::uint64_t positions) const;

 private:
  // Of the first n positions that are left for sources from `source` on: those that it takes.
  std::uint64_t taken(std::size_t source, std::uint64_t n) const;

  std::vector<std::uint64_t> share_, rest_;  // of each source; of it and those behind it
};

}  // namespace strata::runtime

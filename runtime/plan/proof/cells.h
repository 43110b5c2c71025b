#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The bytes of every tier, cut at each offset at which a buffer or a use of one begins or ends, so that every use
// covers whole cells. One numbering runs over all tiers, by rising offset.
class Cells {
 public:
  struct Range {
    int first, last;  // [first, last)
  };
  explicit Cells(const StepPlan& plan);

  int size() const { return size_; }
  // The cells of `bytes`, whose ends must be cuts.
  Range of(Tier tier, const ByteRange& bytes) const { return {cell_at(tier, bytes.begin), cell_at(tier, bytes.end)}; }
  // All cells that overlap `bytes`, which may begin and end anywhere.
  Range touching(Tier tier, const ByteRange& bytes) const;
  std::size_t begin_of(Tier tier, int cell) const;
  std::size_t bytes_of(Tier tier, int cell) const { return begin_of(tier, cell + 1) - begin_of(tier, cell); }

 private:
  void cut(Tier tier, std::size_t at);
  // The cell that begins at `at`, or the next one after it.
  int cell_at(Tier tier, std::size_t at) const;

  std::array<std::vector<std::size_t>, kTiers> cuts_;  // bytes
  std::array<int, kTiers> first_{};
  int size_ = 0;
};

}  // namespace strata::runtime

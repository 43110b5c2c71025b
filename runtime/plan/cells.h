#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "runtime/plan/plan.h"

namespace strata::runtime {

// The bytes of every tier, cut where any buffer or any use of one begins or ends, so that each use is a few whole
// cells. Cells are numbered over all tiers by rising offset.
class Cells {
 public:
  struct Range {
    int first, last;  // [first, last)
  };
  explicit Cells(const StepPlan& plan);

  int size() const { return size_; }
  // Of bytes that begin and end where uses do.
  Range of(Tier tier, const ByteRange& bytes) const { return {cell_at(tier, bytes.begin), cell_at(tier, bytes.end)}; }
  // All that touch the bytes.
  Range touching(Tier tier, const ByteRange& bytes) const;
  std::size_t begin_of(Tier tier, int cell) const;
  std::size_t bytes_of(Tier tier, int cell) const { return begin_of(tier, cell + 1) - begin_of(tier, cell); }

 private:
  void cut(Tier tier, std::size_t at);
  // The cell that begins there, or the first behind it.
  int cell_at(Tier tier, std::size_t at) const;

  std::array<std::vector<std::size_t>, kTiers> cuts_;  // bytes
  std::array<int, kTiers> first_{};
  int size_ = 0;
};

}  // namespace strata::runtime

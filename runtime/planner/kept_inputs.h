#pragma once
#include <span>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"

namespace strata::runtime {

// The inputs of segments that are recomputed in backward, which zero.activations keeps in another tier until then.
class KeptInputs {
 public:
  explicit KeptInputs(Draft& draft);

  struct Input {
    int unit, micro_batch;
  };
  // Whether the input of the unit is kept in another tier.
  bool has(int unit) const;
  // Finds out before which visit each input is to return: the one before the visit that recomputes from it.
  void find_returns(const std::vector<Visit>& visits);
  std::span<const Input> due_before(std::size_t visit) const { return returns_before_[visit]; }
  // Moves an input from buffer `x` to its tier.
  void put_away(int unit, int micro_batch, int x);
  // Brings it back to the device; returns the buffer that it is then in.
  int bring_back(int unit, int micro_batch);

 private:
  int& home_of(int unit, int micro_batch);

  Draft& d_;
  std::vector<std::vector<Input>> returns_before_;  // by visit
  std::vector<int> homes_;                          // buffers, by micro-batch and unit; -1: none
};

}  // namespace strata::runtime

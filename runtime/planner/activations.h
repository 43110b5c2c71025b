#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan/draft.h"
#include "runtime/planner/visits.h"

namespace strata::runtime {

// The activations between units, by micro-batch: their newest buffers (-1: none). If ranks divide the rows
// (parallel.sequence), a buffer has this rank's rows, which are gathered for the calls of a unit that takes all rows.
class Activations {
 public:
  explicit Activations(Draft& draft);

  int& input_of(int unit, int g) { return inputs_[at(unit, g)]; }
  int& saved_of(int unit, int g) { return saved_[at(unit, g)]; }
  // The gradient of the residual stream.
  int& residual_of(int g) { return residuals_[static_cast<std::size_t>(g)]; }

  int add(std::string name);  // a buffer of an activation
  int add_residual(int g);

  // Before a call of a unit: the buffers that hold its input and residual, or take its output and residual.
  bool takes_all_rows(int unit) const;
  int input_for(int unit, int g);
  int residual_for(int unit, int g);
  int output_for(int unit, int g);
  int new_residual_for(int unit, int g);
  // Call after the unit's call: takes this rank's rows of the call's output (`full`).
  void take_output(int unit, int g);
  void take_residual(int unit, int g, int full);

 private:
  std::size_t at(int unit, int g) const;
  int add_full(std::string name);
  int gather(int unit, int g, bool backward, int rows, const std::string& name);

  Draft& d_;
  std::vector<int> inputs_, saved_, residuals_;
};

// The inputs of segments that are recomputed in backward, which zero.activations keeps in another tier until then.
class OffloadedInputs {
 public:
  explicit OffloadedInputs(Draft& draft);

  struct Input {
    int unit, micro_batch;
  };
  // True if the input of the unit is kept in another tier.
  bool has(int unit) const;
  // Determines before which visit each input is brought back: one visit before the visit that recomputes from it.
  void find_returns(const std::vector<Visit>& visits);
  std::span<const Input> due_before(std::size_t visit) const { return returns_before_[visit]; }
  // Moves an input from buffer `x` to its tier.
  void offload(int unit, int micro_batch, int x);
  // Brings it back to the device; returns its buffer there.
  int reload(int unit, int micro_batch);

 private:
  int& stored_buffer(int unit, int micro_batch);

  Draft& d_;
  std::vector<std::vector<Input>> returns_before_;  // per visit: what returns before it
  std::vector<int> stored_;                         // buffers, by micro-batch and unit; -1: none
};

// The share of a call's products in stretch `i`. Products are divided evenly among the stretches that have some
// (Seam::has_products). If ranks divide the rows, these are the stretches that end in a sum; the last stretch has none.
// If backward ends within a unit before any such seam, the first stretch that has its rows has all products.
double share_of_products(const std::vector<models::Seam>& seams, std::size_t i);

// Adds the buffer in which a call of the unit leaves its partial sums, piece or rows at a seam.
int add_partial(Draft& draft, int unit, const models::Seam& seam);

// Adds the task at the seam that follows the call's stretch. `parameters`, `frozen`: the unit's pools; one of them has
// the seam's bias. Returns the buffer of the total.
int add_total(Draft& draft, const Call& call, const models::Seam& seam, int partial, int parameters, int frozen);

}  // namespace strata::runtime

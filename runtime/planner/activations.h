#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/plan/draft.h"

namespace strata::runtime {

// The activations between units, by micro-batch: their newest buffers (-1: none). If ranks divide the rows
// (parallel.sequence), a buffer has this rank's rows, and they are put together for the calls of a unit that takes all
// rows.
class Activations {
 public:
  explicit Activations(Draft& draft);

  int& input_of(int unit, int g) { return inputs_[at(unit, g)]; }
  int& saved_of(int unit, int g) { return saved_[at(unit, g)]; }
  // The gradient of the residual stream.
  int& residual_of(int g) { return residuals_[static_cast<std::size_t>(g)]; }

  int add(std::string name);  // a buffer of an activation
  int add_residual(int g);

  // Before a call of a unit: the buffers in which it finds its input and residual, or writes its output and residual.
  bool takes_all_rows(int unit) const;
  int input_for(int unit, int g);
  int residual_for(int unit, int g);
  int output_for(int unit, int g);
  int new_residual_for(int unit, int g);
  // After the call: takes this rank's rows of what it has written, in `whole`.
  void take_output(int unit, int g);
  void take_residual(int unit, int g, int whole);

 private:
  std::size_t at(int unit, int g) const;
  int add_whole(std::string name);
  int gather(int unit, int g, bool backward, int rows, const std::string& name);

  Draft& d_;
  std::vector<int> inputs_, saved_, residuals_;
};

}  // namespace strata::runtime

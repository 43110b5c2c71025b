#include "runtime/plan/placement.h"

#include "base/error.h"

namespace strata::runtime {

Placement placement_of(const Recipe::Zero& zero) {
  struct Row {
    bool parameters, gradients, optimizer;
  };
  constexpr std::array<Row, 4> kStages = {{
      {false, false, false},
      {false, false, true},
      {false, true, true},
      {true, true, true},
  }};
  const Row& row = kStages.at(static_cast<std::size_t>(zero.stage));
  return {{row.parameters, zero.parameters},
          {row.gradients, zero.gradients},
          {row.optimizer, zero.optimizer},
          zero.activations};
}

}  // namespace strata::runtime

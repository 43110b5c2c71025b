#include "runtime/plan/placement.h"

#include "base/error.h"

namespace strata::runtime {

Placement placement_of(const Recipe::Zero& zero) {
  struct Row {
    Axis parameters, gradients, optimizer;
  };
  constexpr std::array<Row, 4> kStages = {{
      {Axis::none, Axis::none, Axis::none},
      {Axis::none, Axis::none, Axis::data},
      {Axis::none, Axis::data, Axis::data},
      {Axis::data, Axis::data, Axis::data},
  }};
  const Row& row = kStages.at(static_cast<std::size_t>(zero.stage));
  return {{row.parameters, zero.parameters},
          {row.gradients, zero.gradients},
          {row.optimizer, zero.optimizer},
          zero.activations};
}

}  // namespace strata::runtime

#include "models/layers/heads/head_costs.h"

namespace strata::models {

// The products with the table are the logits, the gradient of the input, and the gradient of the table.
Work HeadCosts::of_words(std::size_t words, bool learns) const {
  const double products = !learns ? 1 : learns_table ? 3 : 2;
  const double of_table = 2 * static_cast<double>(rows) * static_cast<double>(words * hidden);
  const double of_b = adapter ? adapter->flops_of_b(static_cast<double>(words), learns) : 0;
  return {.flops = products * of_table + flops_before_table(true, learns) + of_b,
          .bytes = 4 * static_cast<double>(rows * words) * products};
}

Work HeadCosts::of_step(LossStep step, std::size_t elements) const {
  const bool first = step == LossStep::norm;
  if (first || step == LossStep::finish)
    return {.flops = flops_before_table(first, !first),
            .bytes = static_cast<double>(2 * rows * hidden * size_of(dtype))};
  const bool learns = step == LossStep::gradients;
  const double products = !learns ? 1 : learns_table ? 3 : 2;
  const std::size_t rank = adapter ? adapter->rank() : 0, words = elements / (hidden + rank);
  const double of_table = 2 * static_cast<double>(rows) * static_cast<double>(elements - words * rank);
  const double of_b = adapter ? adapter->flops_of_b(static_cast<double>(words), learns) : 0;
  return {.flops = products * of_table + of_b,
          .bytes = 4 * static_cast<double>(rows * elements / (hidden + rank)) * products};
}

// The transform, and the adapter's A.
double HeadCosts::flops_before_table(bool forward, bool backward) const {
  return input.flops(forward, backward) + (adapter ? adapter->flops_of_a(forward, backward) : 0);
}

}  // namespace strata::models

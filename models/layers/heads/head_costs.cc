#include "models/layers/heads/head_costs.h"

namespace strata::models {

Work HeadCosts::loss_work(std::size_t words, bool learns) const {
  const Work of_tiles = table_work(words * hidden, words, learns);
  const double of_norms = adapter ? adapter->flops_of_norms(static_cast<double>(words)) : 0;
  return {.flops = of_tiles.flops + of_norms + flops_before_table(true, learns), .bytes = of_tiles.bytes};
}

// The products with the table are the logits, the gradient of the input, and the gradient of the table.
Work HeadCosts::table_work(std::size_t elements, std::size_t words, bool learns) const {
  const double products = (!learns ? 1 : learns_table ? 3 : 2) + (adapter ? adapter->more_products(learns) : 0);
  const double passes = products + (adapter ? adapter->more_passes(learns) : 0);
  const double of_product = 2 * static_cast<double>(rows) * static_cast<double>(elements);
  const double of_b = adapter ? adapter->flops_of_b(static_cast<double>(words), learns) : 0;
  return {.flops = products * of_product + of_b, .bytes = 4 * static_cast<double>(rows * words) * passes};
}

Work HeadCosts::step_work(LossStep step, std::size_t elements) const {
  const bool first = step == LossStep::norm;
  if (first || step == LossStep::finish)
    return {.flops = flops_before_table(first, !first),
            .bytes = static_cast<double>(2 * rows * hidden * size_of(dtype))};
  const bool learns = step == LossStep::gradients;
  const std::size_t rank = adapter ? adapter->rank() : 0, words = elements / (hidden + rank);
  Work work = table_work(elements - words * rank, words, learns);
  if (adapter && !learns) work.flops += adapter->flops_of_norms(static_cast<double>(words));
  return work;
}

// The transform, and the adapter's A.
double HeadCosts::flops_before_table(bool forward, bool backward) const {
  return input.flops(forward, backward) + (adapter ? adapter->flops_of_a(forward, backward) : 0);
}

}  // namespace strata::models

#include "runtime/planner/seams.h"

#include <algorithm>

#include "runtime/tasks/collectives/exchange.h"
#include "runtime/tasks/collectives/rows.h"

namespace strata::runtime {

double share_of_products(const std::vector<models::Seam>& seams, std::size_t i) {
  const bool divided = std::ranges::any_of(seams, [](const models::Seam& seam) { return seam.row_matrices > 0; });
  const auto has_products = [&](const models::Seam& seam) { return seam.has_products && (!divided || seam.own_rows); };
  if (i >= seams.size() || !has_products(seams[i])) return 0;
  return 1.0 / static_cast<double>(std::ranges::count_if(seams, has_products));
}

int add_partial(Draft& draft, int unit, const models::Seam& seam) {
  const std::size_t bytes =
      seam.row_matrices > 0 ? GatherRows::rows_bytes(draft, seam.row_matrices) : Exchange::partial_bytes(draft, seam);
  return draft.add_buffer("partial sums of " + draft.unit(unit).name(), Kind::activations, Tier::device, bytes, false);
}

int add_total(Draft& draft, const Call& call, const models::Seam& seam, int partial, int parameters, int frozen) {
  const bool backward = call.kind == TaskKind::backward, gathers = seam.row_matrices > 0;
  const int total = draft.add_buffer(
      (gathers ? "rows of " : "sums of ") + draft.unit(call.unit).name(), Kind::activations, Tier::device,
      gathers ? GatherRows::whole_bytes(draft, seam.row_matrices) : Exchange::total_bytes(draft, seam), false);
  if (gathers)
    GatherRows{.unit = call.unit,
               .micro_batch = call.micro_batch,
               .stretch = call.stretch,
               .backward = backward,
               .matrices = seam.row_matrices,
               .rows = partial,
               .whole = total}
        .add(draft);
  else
    Exchange{.unit = call.unit,
             .micro_batch = call.micro_batch,
             .stretch = call.stretch,
             .backward = backward,
             .seam = seam,
             .partial = partial,
             .total = total,
             .parameters = parameters,
             .frozen = frozen}
        .add(draft);
  return total;
}

}  // namespace strata::runtime

#include "runtime/data/sequences/labelling.h"

#include <algorithm>

#include "base/error.h"
#include "device/ops/losses/cross_entropy.h"

namespace strata::runtime {

void take_labelled(const Rows& rows) {
  if (rows.loss_rows.empty()) return;
  std::size_t taken = 0;
  for (std::size_t row = 0; row < rows.labels.size(); ++row) {
    const std::int32_t label = rows.labels[row];
    if (label == device::kIgnoredLabel) continue;
    STRATA_CHECK_LT(taken, rows.loss_rows.size());
    rows.loss_rows[taken] = static_cast<std::uint32_t>(row);
    rows.labels[taken++] = label;
  }
  std::ranges::fill(rows.loss_rows.subspan(taken), 0u);
  std::ranges::fill(rows.labels.subspan(taken), device::kIgnoredLabel);
}

}  // namespace strata::runtime

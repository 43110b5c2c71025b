#include "runtime/data/sequences/labelling.h"

#include <algorithm>

#include "base/error.h"
#include "device/ops/losses/class_loss.h"
#include "device/ops/losses/cross_entropy.h"

namespace strata::runtime {

std::span<std::uint32_t> write_class_sets(const LabelColumn* column, std::span<const std::int32_t> labels,
                                          std::span<std::uint32_t> to) {
  const ClassSets* const sets = column == nullptr ? nullptr : column->sets();
  if (sets == nullptr) return to;
  const std::size_t words = device::class_set_words(device::ClassTarget::many, sets->classes());
  for (const std::int32_t label : labels) {
    if (label == device::kIgnoredLabel) continue;
    STRATA_CHECK_LE(words, to.size());
    sets->write(label, to.first(words));
    to = to.subspan(words);
  }
  return to;
}

void fill_without_document(const Rows& rows) {
  std::ranges::fill(rows.tokens, 0u);
  std::ranges::fill(rows.labels, device::kIgnoredLabel);
  std::ranges::fill(rows.positions, 0u);
  std::ranges::fill(rows.documents, device::RowRange{});
  std::ranges::fill(rows.types, 0u);
}

void take_labelled(const Rows& rows) {
  if (rows.loss_rows.empty()) {
    STRATA_CHECK(rows.class_sets.empty());  // sets follow each other as labels do once they are taken
    return;
  }
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

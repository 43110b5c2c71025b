#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// A label that does not count.
inline constexpr std::int32_t kIgnoredLabel = -100;

// fp32 logits of `rows` rows for words [first, first + columns) of the vocabulary: all of it, or a tile. Rows start
// `stride` elements apart.
struct LogitTile {
  std::size_t rows, first, columns, stride;
  View logits;
};

// What a row's loss and gradient need to know of all its logits.
struct RowStatistics {
  double sum;            // of e^(x - largest)
  float largest, label;  // label: the label's logit
};

// The statistics of each row, from its tiles in rising order, one call each; the tile at word 0 starts over.
void softmax_statistics(Lane&, const LogitTile& tile, const std::int32_t* labels, RowStatistics* statistics);
// Cross-entropy of rows against labels below `vocab`; losses: fp32 [rows], 0 if ignored.
void cross_entropy_losses(Lane&, std::size_t vocab, const RowStatistics* statistics, const std::int32_t* labels,
                          View losses);
// Overwrites each row of the tile in place with scalars->loss_gradient * (softmax - onehot) in `gradient` dtype: row r
// of the gradient starts where row r of the logits starts, so its leading dimension is `stride` elements of fp32, and
// 2 * stride of a 16-bit dtype.
void cross_entropy_gradient(Lane&, const LogitTile& tile, const std::int32_t* labels, const RowStatistics* statistics,
                            const StepScalars* scalars, DType gradient);

// Adds the sum of `losses` (fp64, in an order of the twin's that depends on their number alone) to *total.
void sum_losses(Lane&, ConstView losses, ExactSum* total);

}  // namespace strata::device

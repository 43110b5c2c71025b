#pragma once
#include <cstddef>
#include <cstdint>

#include "device/lane.h"
#include "device/numeric/exact_sum.h"
#include "device/step_scalars.h"
#include "device/view.h"

namespace strata::device {

// The label of rows that do not count.
inline constexpr std::int32_t kIgnoredLabel = -100;

// fp32 logits of `rows` rows for words [first, first + columns) of the vocabulary: the whole vocabulary, or a tile of
// it. Rows start `stride` elements apart.
struct LogitTile {
  std::size_t rows, first, columns, stride;
  View logits;
  bool starts;  // the first tile of the vocabulary, or of a shard with its own statistics
};

// The statistics of a row's logits that its loss and gradient need.
struct RowStatistics {
  double sum;            // the sum of e^(x - largest)
  float largest, label;  // label: the label's logit
};

// The statistics of each row, from its tiles in ascending order, one call each. A tile that `starts` starts over.
void softmax_statistics(Lane&, const LogitTile& tile, const std::int32_t* labels, RowStatistics* statistics);

// A vocabulary that is cut into `count` shards (a power of two) of `words` words each. The last shards may have fewer
// words, or none.
struct VocabularyShards {
  std::size_t vocabulary, count, words;
};
// The statistics of `rows` rows over the whole vocabulary from its shards' statistics, [count, rows]; a shard without
// words is not read. Sums are added by a balanced binary tree, in fp64.
void combine_statistics(Lane&, const VocabularyShards& shards, std::size_t rows, const RowStatistics* shard_statistics,
                        const std::int32_t* labels, RowStatistics* statistics);
// The cross-entropy of rows with labels below `vocab`; losses: fp32 [rows], 0 if ignored.
void cross_entropy_losses(Lane&, std::size_t vocab, const RowStatistics* statistics, const std::int32_t* labels,
                          View losses);
// Overwrites each row of the tile in place with scalars->loss_gradient * (softmax - onehot) in `gradient` dtype. Row r
// of the gradient starts where row r of the logits starts, so its leading dimension is `stride` elements of fp32, or 2
// * stride of a 16-bit dtype.
void cross_entropy_gradient(Lane&, const LogitTile& tile, const std::int32_t* labels, const RowStatistics* statistics,
                            const StepScalars* scalars, DType gradient);

// Adds the sum of `losses` to *total, in fp64 and in an order that depends only on the twin and their number.
void sum_losses(Lane&, ConstView losses, ExactSum* total);

// The target of a classifier's scores, and what a row's label then is.
enum class ClassTarget : std::uint8_t {
  one,     // a class: cross-entropy of the softmax
  many,    // any number of classes, bit c is class c: the mean over classes of each sigmoid's cross-entropy
  number,  // the bits of a float: the squared difference; one class
  none     // anything: there is no loss
};

// The number of 32-bit words for a row's set of classes if the label, which has 31 bits for it, is too small. Bit c %
// 32 of word c / 32 is class c, and the label then only says whether the row counts. 0: the label holds the target.
constexpr std::size_t class_set_words(ClassTarget target, std::size_t classes) {
  return target == ClassTarget::many && classes > 31 ? (classes + 31) / 32 : 0;
}

// fp32 scores of `rows` rows for `classes` classes; rows start `stride` elements apart.
struct ClassScoreShape {
  std::size_t rows, classes, stride;
  ClassTarget target;
};

// losses: fp32 [rows], 0 if the label is kIgnoredLabel. sets: [rows, class_set_words()], which replace all labels but
// kIgnoredLabel; null if there are no such words. weights: fp32 [classes], factors of the classes' losses; null: 1.
// d_scores: scalars->loss_gradient times the gradient, in the scores' layout and its own dtype; empty: not computed.
void class_loss(Lane&, const ClassScoreShape& shape, ConstView scores, const std::int32_t* labels,
                const std::uint32_t* sets, const float* weights, const StepScalars* scalars, View losses,
                View d_scores);

}  // namespace strata::device

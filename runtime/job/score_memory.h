#pragma once
#include <cstddef>
#include <cstdint>

#include "models/classes.h"

namespace strata::runtime {

// The maximum number of classes with which an evaluation makes a confusion matrix and curves (ROC AUC). Both grow with
// the number of classes, and hardly any data set with more classes has examples of each.
inline constexpr std::size_t kMaxTabled = 1024;

// The place in a predictions file of the row with this number.
struct RowLocation {
  std::int64_t row;
  std::uint64_t offset;
};

// The memory that a plan reserves for a classifier's scores: the buffers that ranks exchange, and the values kept until
// all rows have been seen.
struct ScoreMemory {
  // `rows`: the maximum number of scored rows, over all ranks. `of_micro_batch`: the rows of a micro-batch that enter
  // the loss.
  ScoreMemory(const models::Classes& classes, std::uint64_t rows, int ranks, std::size_t of_micro_batch);

  std::uint64_t rows;
  std::size_t of_micro_batch;
  bool curves;              // true if the scores of all classes are kept, false if only the predicted class is
  std::size_t first_curve;  // with two exclusive classes only the second one has a curve
  std::size_t label_words;  // words of a row's label: one, or its set of classes (device::class_set_words())
  std::size_t words;        // words of a row as it is sent: its label and the model's output
  std::size_t rounds;       // micro-batches of a rank per exchange
  std::size_t columns;      // the maximum number of curves per rank
  std::size_t chunk_bytes;  // bytes that a rank sends per exchange
  std::size_t bytes;        // kept on a rank. Regression: labels and predictions; curves: labels and columns of scores;
                            // prediction: each RowLocation
};

}  // namespace strata::runtime

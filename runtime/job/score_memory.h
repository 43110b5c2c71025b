#pragma once
#include <cstddef>
#include <cstdint>

#include "models/classes.h"

namespace strata::runtime {

// Classes up to which an evaluation has a confusion matrix and curves (ROC AUC): both grow with the classes, and of
// more than these hardly any data have a text of each.
inline constexpr std::size_t kMostTabled = 1024;

// Where a row of a prediction lies in a file, by the row's number.
struct RowPlace {
  std::int64_t row;
  std::uint64_t offset;
};

// The memory that a plan has for what a classifier says of rows: what ranks send each other of it, and what is kept
// until all rows are there.
struct ScoreMemory {
  // rows: that count, of all ranks, at most; of_micro_batch: those that the loss takes of a micro-batch.
  ScoreMemory(const models::Classes& classes, std::uint64_t rows, int ranks, std::size_t of_micro_batch);

  std::uint64_t rows;
  std::size_t of_micro_batch;
  bool curves;              // whether the scores of all classes are needed: else only which one a row was said to be of
  std::size_t first_curve;  // of two classes that a text has one of, the second alone has a curve
  std::size_t words;        // of a row as it is sent: its label and what the model said
  std::size_t rounds;       // micro-batches of a rank that are sent at once
  std::size_t columns;      // curves that one rank makes, at most
  std::size_t chunk_bytes;  // that a rank sends at once
  std::size_t bytes;        // that are kept: of a regression labels and predictions, of curves labels and columns of
                            // scores, of a prediction where each row lies
};

}  // namespace strata::runtime

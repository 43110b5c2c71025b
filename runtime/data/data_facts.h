#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::runtime {

// What a plan has to know about the recipe's files. Made once, when the data are opened (settle_data), and passed on as
// a value. If nobody has opened the data, nothing is known, and everything is 0.
struct DataFacts {
  // The most host memory in bytes that sequences keep (index, labels), for train and for validation, as far as the run
  // reads them.
  std::size_t index_bytes = 0, validation_index_bytes = 0;
  // The mean over sequences of the sum of their documents' squared lengths; 0: a sequence is one document.
  double mean_squares = 0;
  // The most rows of a sequence that enter the loss, for train and for validation; 0: all. The objective knows a limit
  // before a file is opened.
  std::uint64_t loss_rows = 0, validation_loss_rows = 0;
  // The labelled rows of data.validation, for a classifier that is evaluated.
  std::uint64_t scored_rows = 0;
  std::vector<std::string> notes;  // one-sentence notes for the user about the files
};

}  // namespace strata::runtime

#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace strata::runtime {

// What the files of a recipe came to, as far as a plan has to know. Made once, when the data are opened (settle_data),
// and handed on as a value; of data that nobody opened nothing is known, and everything is 0.
struct DataFacts {
  // Bytes of host memory for what sequences keep at most (index, labels), of train and of validation, for those that
  // the run reads.
  std::size_t index_bytes = 0, validation_index_bytes = 0;
  // The mean over sequences of the sum of their documents' squared lengths; 0: a sequence is one document.
  double mean_squares = 0;
  // Rows of a sequence that the loss takes at most, of train and of validation; 0: all. The objective knows a limit
  // before a file is opened.
  std::uint64_t loss_rows = 0, validation_loss_rows = 0;
  // Rows of data.validation with a label, of a classifier that is evaluated.
  std::uint64_t scored_rows = 0;
  std::vector<std::string> notes;  // what the user should know of the files, a sentence each
};

}  // namespace strata::runtime

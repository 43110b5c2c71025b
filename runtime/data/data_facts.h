#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/data/sequences/packed_sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Facts about the recipe's files on which a plan depends. Determined once, when the data are opened (resolve_data), and
// passed on as a value. Before that, every number is 0.
struct DataFacts {
  // The value that replaces data.packing = "auto"; automatic until it is known.
  Packing packing = Packing::automatic;
  // The maximum host memory, in bytes, for the index and labels of the sequences that the run reads, for train and for
  // validation.
  std::size_t index_bytes = 0, validation_index_bytes = 0;
  // The mean over sequences of the sum of their documents' squared lengths; 0: a sequence is one document.
  double mean_squares = 0;
  // The maximum number of rows of a sequence that enter the loss, for train and for validation; 0: all. The objective
  // sets a limit before any file is opened.
  std::uint64_t loss_rows = 0, validation_loss_rows = 0;
  // The labelled rows of data.validation, for a classifier that is evaluated.
  std::uint64_t scored_rows = 0;
  std::vector<std::string> notes;  // one-sentence notes for the user about the files
};

// Describes how packing went for `sequences` of seq_len rows: "1.2% of positions unused", "2 documents longer than ..."
std::vector<std::string> packing_texts(const PackingFigures& figures, std::uint64_t sequences, std::int64_t seq_len);

// A run's report on its sources, one line each: "data of a.bin: 120 sequences of 950 documents, 1.2% of positions
// unused, 30.0% of the run, 2.50 epochs". `micro_batches`: their number in the whole run.
std::vector<std::string> describe_data(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches);

// The same as JSON, one object per source, for the first `micro_batches` of the run.
std::string data_json(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches);

}  // namespace strata::runtime

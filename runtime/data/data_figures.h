#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/data/sequences/packed_sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// Describes how packing went for `sequences` of seq_len rows: "1.2% of positions unused", "2 documents longer than ..."
std::vector<std::string> packing_texts(const PackingFigures& figures, std::uint64_t sequences, std::int64_t seq_len);

// A run's report on its sources, one line each: "data of a.bin: 120 sequences of 950 documents, 1.2% of positions
// unused, 30.0% of the run, 2.50 epochs". `micro_batches`: of the whole run.
std::vector<std::string> describe_data(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches);

// The same as JSON, one object per source, for the first `micro_batches` of the run.
std::string data_json(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches);

}  // namespace strata::runtime

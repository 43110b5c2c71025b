#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/batches.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// What a run is told about its data, a line for each source: "data: 120 sequences of 950 documents (1.2% of rows left
// over), 2.5 epochs". micro_batches: of the whole run.
std::vector<std::string> describe_data(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches);

// The same as JSON, of the first `micro_batches` of the run: an object for each source.
std::string data_json(const Batches& batches, const Recipe& recipe, std::uint64_t micro_batches);

}  // namespace strata::runtime

#pragma once
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/make_job.h"

namespace strata::runtime {

// A change of the recipe with which the plan fits, and what it then needs.
struct Suggestion {
  std::vector<std::pair<std::string, std::string>> changes;  // key, value
  Memory memory;
};
// The nearest recipes that fit, fewest changes first; each was planned. If none does and the recipe names no drive,
// those that do with one, with memory.nvme = "FOLDER" among the changes. Empty: none was found.
std::vector<Suggestion> nearest_that_fit(const Job& refused, const Capacity& capacity,
                                         Purpose purpose = Purpose::train);

}  // namespace strata::runtime

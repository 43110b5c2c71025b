#pragma once
// runtime/job/search/ makes jobs until one fits: other recipes if the plan does not fit, and the sentence that refuses
// the plan (here; candidate.h, meshes.h); the largest micro-batch (micro_batch.h); and the fastest algorithm of each
// product (algorithms.h).

#include <string>
#include <utility>
#include <vector>

#include "runtime/job/make_job.h"

namespace strata::runtime {

// Changes of the recipe that make its plan fit, and the memory that the plan then needs.
struct Suggestion {
  std::vector<std::pair<std::string, std::string>> changes;  // key, value
  Memory memory;
};
// Returns the nearest recipes that fit, fewest changes first; each one was planned. If none fits and the recipe names
// no drive, returns those that fit with one, with memory.nvme = "FOLDER" among the changes. If that does not help
// either, returns the recipe on the first other mesh of the same ranks that fits (degrees_to_try); otherwise recipes
// whose losses change: in bf16, also on other meshes, and last with a smaller batch. Empty if none was found.
std::vector<Suggestion> nearest_that_fit(const Job& refused, const Capacity& capacity,
                                         Purpose purpose = Purpose::train);

// The sentence that refuses a plan: what it needs, what is available, and what would fit or was tried.
std::string refusal(const Job& job, const Capacity& capacity, const std::vector<Suggestion>& nearest);

}  // namespace strata::runtime

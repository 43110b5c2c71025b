#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.h"

namespace strata::runtime {

// By what an evaluation is judged: the keys of a recipe that make two evaluations comparable, with their values as
// to_text() gives them.
std::string measure_of(const std::map<std::string, std::string>& recipe);

// What a checkpoint of a run with checkpoint.keep_best says is the best one of its folder.
struct BestClaim {
  std::string measure;
  bool greater = false;  // is better
  std::int64_t step = 0;
  double value = 0;
};
// nullopt: its run kept no best one, or had none yet.
std::optional<BestClaim> best_claim(const Manifest& manifest);

// A checkpoint of a folder, as far as it matters here.
struct Claimant {
  std::int64_t step = 0;
  std::uint64_t serial = 0;
  std::optional<BestClaim> claim;
};
// Which of them (indices into `all`) are the best by some measure: of each, the one with the best value that is still
// there. One of a run that goes on by another measure, or keeps none, stays so until a better one by its own is there.
std::vector<std::size_t> best_by_measure(const std::vector<Claimant>& all);

}  // namespace strata::runtime

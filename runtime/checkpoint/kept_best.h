#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// True if a run of this recipe ranks evaluations by the measure of the checkpoint's run: by the same metric on the same
// contents of data.validation. `validation_hash`: this run's Manifest::validation_hash; if the manifest has none, the
// names of the files are compared.
bool same_measure(const Manifest& manifest, const Recipe& recipe, const std::string& validation_hash);

// The checkpoint that a run with checkpoint.keep_best considers the best of its folder.
struct BestCheckpoint {
  std::string measure;   // equal for runs that rank evaluations in the same way
  bool greater = false;  // is better
  std::int64_t step = 0;
  double value = 0;
  std::string by_names = {};  // the measure with the names of data.validation, if `measure` has its contents
};
// nullopt if the run keeps no best checkpoint, or has none yet.
std::optional<BestCheckpoint> best_checkpoint(const Manifest& manifest);

// The properties of a checkpoint that best_by_measure() uses.
struct RankedCheckpoint {
  std::int64_t step = 0;
  std::uint64_t serial = 0;
  std::optional<BestCheckpoint> best;
};
// Returns indices into `all`: for each measure, the checkpoint with the best value that still exists. An earlier run's
// best is included even if the current run has another measure or keeps none. A measure by names counts as the measure
// of the newest checkpoint with the same names.
std::vector<std::size_t> best_by_measure(const std::vector<RankedCheckpoint>& all);

}  // namespace strata::runtime

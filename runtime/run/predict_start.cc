#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "runtime/checkpoint/choice.h"
#include "runtime/checkpoint/kept_best.h"
#include "runtime/checkpoint/reader.h"
#include "runtime/data/open_data.h"
#include "runtime/run/resume.h"

namespace strata::runtime {
namespace {

// The start of a run that resumes from this checkpoint. If patience is used up, the run takes no step, and its plan
// is the usual one.
StartPoint after(const Manifest& manifest, const Recipe& recipe, const std::string& validation_hash) {
  std::optional<Best> best = manifest.progress.best;
  if (!same_measure(manifest, recipe, validation_hash)) best.reset();
  const std::int64_t patience = recipe.evaluation.patience;
  if (best && patience > 0 && best->since >= patience) return {};
  return {manifest.progress.step, best && best->newest == manifest.progress.step};
}

struct ReadManifest {
  std::filesystem::path path;
  Manifest manifest;
};

// The newest checkpoint that the recipe resumes from; nullopt if there is none, or if it cannot be read.
std::optional<ReadManifest> newest_checkpoint(const Recipe& recipe) {
  try {
    for (const FoundCheckpoint& found : checkpoints_to_resume(recipe.checkpoint).found)
      if (found.damage.empty()) return ReadManifest{found.path, read_manifest(found.path)};
  } catch (const Error&) {
  }
  return std::nullopt;
}

}  // namespace

StartPoint predict_start(const Recipe& recipe, int threads) {
  if (!recipe.evaluation.asked()) return {};
  try {
    const ResumeChoice choice = checkpoints_to_resume(recipe.checkpoint);
    struct Candidate {
      const FoundCheckpoint* found;
      StartPoint from;
    };
    const std::string validation = choice.found.empty() ? "" : validation_hash(recipe.data);
    std::vector<Candidate> all;
    for (const FoundCheckpoint& found : choice.found)
      if (found.damage.empty()) all.push_back({&found, after(read_manifest(found.path), recipe, validation)});
    while (!all.empty()) {
      const auto evaluates = [&](const Candidate& c) { return will_evaluate(recipe, c.from); };
      const Candidate newest = all.front();
      if (evaluates(newest) || std::none_of(all.begin(), all.end(), evaluates)) return newest.from;
      try {
        Checkpoint(newest.found->path).verify(threads);
        return newest.from;
      } catch (const Error& error) {
        if (error.code() != Exit::corrupt) throw;
        all.erase(all.begin());
      }
    }
  } catch (const Error&) {
  }
  return {};
}

std::string refused_by_checkpoint(const Job& job) {
  const auto newest = newest_checkpoint(job.recipe);
  if (!newest) return {};
  try {
    (void)progress_under(newest->manifest, newest->path, job, "");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::int64_t resumed_shards(const Recipe& recipe) {
  const auto newest = newest_checkpoint(recipe);
  return newest ? shards_of(newest->manifest) : 0;
}

std::optional<std::int64_t> shards_to_take(const Recipe& recipe, std::int64_t shards, Purpose purpose) {
  const Recipe::Parallel& parallel = recipe.parallel;
  if (parallel.tensor_shards || shards == 0) return std::nullopt;
  if (purpose == Purpose::train && shards % parallel.tensor != 0)
    fail(Exit::usage,
         "the checkpoint to resume from was written with parallel.tensor_shards = {}, which is part of the numerics, "
         "but parallel.tensor = {} does not divide it: use at most {} per block, or start over from exported weights",
         shards, parallel.tensor, counted(shards, "rank"));
  return shards;
}

}  // namespace strata::runtime

#include "runtime/checkpoint/kept_best.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "base/error.h"
#include "runtime/recipe/evaluation_metric.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::runtime {
namespace {

std::string value_of(const std::map<std::string, std::string>& recipe, std::string_view key) {
  const auto found = recipe.find(std::string(key));
  return found == recipe.end() ? "" : found->second;
}

bool greater_is_better(const std::map<std::string, std::string>& recipe) {
  const std::string given = value_of(recipe, "evaluation.greater_is_better");
  if (given == "true" || given == "false") return given == "true";
  std::string metric = value_of(recipe, "evaluation.metric");
  std::erase(metric, '"');
  const std::vector<std::string_view> known = metric_names();
  return std::find(known.begin(), known.end(), metric) != known.end() && metric_named(metric).greater_is_better;
}

constexpr std::string_view kValidation = "data.validation";

// The names of data.validation. Manifests of older versions have them as the user wrote them.
std::string absolute_names(const std::map<std::string, std::string>& recipe) {
  const std::string names = value_of(recipe, kValidation);
  if (names.find('"') == std::string::npos) return names;  // none
  std::string out;
  try {
    for (auto& [key, value] : values_of(with_absolute_paths(stored_keys(recipe, {&kValidation, 1}))))
      if (key == kValidation) out = std::move(value);
  } catch (const Error&) {  // a value of another version, which must not prevent listing the checkpoint
    return names;
  }
  return out;
}

// The recipe keys that make two evaluations comparable, with their values as to_text() writes them. `validation`: the
// hash of data.validation, or its names.
std::string measure_of(const std::map<std::string, std::string>& recipe, const std::string& validation) {
  constexpr std::array<std::string_view, 4> kKeys = {"evaluation.metric", "evaluation.greater_is_better",
                                                     "evaluation.max_sequences", "training.class_weights"};
  const auto line = [](std::string_view key, const std::string& value) {
    return std::string(key) + " = " + value + "\n";
  };
  std::string out = line(kValidation, validation);
  for (const std::string_view key : kKeys) out += line(key, value_of(recipe, key));
  return out;
}

}  // namespace

bool same_measure(const Manifest& manifest, const Recipe& recipe, const std::string& validation_hash) {
  const auto values = values_of(recipe);
  const std::map<std::string, std::string> now(values.begin(), values.end());
  const bool known = !manifest.validation_hash.empty();
  return measure_of(manifest.recipe, known ? manifest.validation_hash : absolute_names(manifest.recipe)) ==
         measure_of(now, known ? validation_hash : absolute_names(now));
}

std::optional<BestCheckpoint> best_checkpoint(const Manifest& manifest) {
  const std::optional<Best>& best = manifest.progress.best;
  if (!best || std::isnan(best->value) || value_of(manifest.recipe, "checkpoint.keep_best") != "true")
    return std::nullopt;
  const std::string by_names = measure_of(manifest.recipe, absolute_names(manifest.recipe));
  BestCheckpoint out{by_names, greater_is_better(manifest.recipe), best->step, best->value};
  if (manifest.validation_hash.empty()) return out;
  out.measure = measure_of(manifest.recipe, manifest.validation_hash);
  out.by_names = by_names;
  return out;
}

std::vector<std::size_t> best_by_measure(const std::vector<RankedCheckpoint>& all) {
  struct Kept {
    std::size_t index;
    double value;
  };
  // Checkpoints of older versions identify data.validation only by its names. The names stand for the contents that the
  // first checkpoint of a newer version recorded, because it continued the same run. The files may have changed since.
  std::map<std::string, const RankedCheckpoint*> successors;
  for (const RankedCheckpoint& by : all) {
    if (!by.best || by.best->by_names.empty()) continue;
    const RankedCheckpoint*& first = successors[by.best->by_names];
    if (!first || by.serial < first->serial) first = &by;
  }
  const auto measure_by = [&](const BestCheckpoint& best) {
    const auto found = successors.find(best.measure);
    return found == successors.end() ? best.measure : found->second->best->measure;
  };
  std::map<std::string, Kept> kept;
  for (const RankedCheckpoint& by : all) {
    if (!by.best) continue;
    // A later run that started over may have written the same step again.
    std::optional<std::size_t> there;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].step == by.best->step && all[i].serial <= by.serial && (!there || all[*there].serial < all[i].serial))
        there = i;
    if (!there) continue;
    const auto [at, first] = kept.try_emplace(measure_by(*by.best), Kept{*there, by.best->value});
    const double before = at->second.value, now = by.best->value;
    if (!first && (by.best->greater ? now > before : now < before)) at->second = {*there, now};
  }
  std::vector<std::size_t> out;
  for (const auto& [measure, best] : kept) out.push_back(best.index);
  return out;
}

}  // namespace strata::runtime

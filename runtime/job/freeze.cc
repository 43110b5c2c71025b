#include "runtime/job/freeze.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/numeric/nf4.h"
#include "models/freeze.h"
#include "runtime/recipe/names/edits.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kNearestTensors = 3, kMostPatternLetters = 128;

std::vector<std::string> nearest_tensors(std::vector<std::string> names, const std::string& pattern) {
  std::string letters = pattern.substr(0, kMostPatternLetters);
  std::erase(letters, '*');
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return edits(letters, name); });
  names.resize(std::min(names.size(), kNearestTensors));
  return names;
}

}  // namespace

void require_freezable(const models::Model& model, std::span<const std::string> patterns) {
  std::vector<std::string> names;
  for (const auto& unit : model.units) {
    for (const models::Parameter& parameter : unit->parameters()) names.push_back(parameter.name);
    if (unit->shared()) names.push_back(unit->shared()->name);
  }
  for (const std::string& pattern : patterns)
    if (std::ranges::none_of(names, [&](const auto& name) { return models::is_frozen_by({&pattern, 1}, name); }))
      fail(Exit::usage, "training.freeze: no tensor of this {} model has a name like {}; the nearest are {}",
           model.family, pattern, fmt::join(nearest_tensors(names, pattern), ", "));
  if (model.trained_parameters() == 0)
    fail(Exit::usage, "training.freeze = [{}] freezes all of the model, and nothing would be trained: leave some out",
         fmt::join(patterns, ", "));
}

void require_quantised(const models::Model& model) {
  if (std::ranges::any_of(model.units, [](const auto& unit) { return unit->size(models::PoolKind::quantised) > 0; }))
    return;
  const bool frozen = std::ranges::any_of(model.units, [](const auto& unit) {
    return std::ranges::any_of(unit->parameters(), [](const models::Parameter& p) { return !p.trained(); });
  });
  fail(Exit::usage, "model.frozen_format = \"nf4\" applies to frozen matrices of blocks' linear layers, and {}",
       frozen ? "none of them is frozen: name some in training.freeze, or leave it out"
              : "nothing is frozen: give training.freeze, or leave it out");
}

void require_whole_scales(const models::Model& model, std::size_t shards, bool adapted) {
  for (const auto& unit : model.units)
    for (const models::Parameter& p : unit->parameters()) {
      if (p.pool() != models::PoolKind::quantised || p.slice.shards == 1) continue;
      if (!adapted)
        fail(
            Exit::usage,
            "parallel.tensor_shards = {} supports layers in 4 bits as the base of an adapter alone: set adapter.kind = "
            "\"lora\", or leave model.frozen_format out",
            shards);
      const std::size_t run = p.piece(0).length;  // elements that follow each other
      if (run % device::kScaleBlock == 0) continue;
      std::size_t most = shards;
      while (most > 1 && run * (shards / most) % device::kScaleBlock != 0) most /= 2;
      fail(Exit::usage,
           "parallel.tensor_shards = {} cuts {} every {} elements, and in 4 bits {} in a row share a scale: {}", shards,
           p.name, run, device::kScaleBlock,
           most > 1                   ? fmt::format("use at most {}", most)
           : model.quantised_in_files ? "use 1, or a model whose files are not in 4 bits"
                                      : "use 1, or leave model.frozen_format out");
    }
}

std::string note_of_quantised_files(const models::Model& model) {
  return fmt::format(
      "the model's files hold its linear layers in 4 bits, which stay as they are: {} of {} parameters are trained "
      "(tables, norms, biases, the head); adapter.kind = \"lora\" trains an adapter on top of them",
      model.trained_parameters(), model.parameters());
}

}  // namespace strata::runtime

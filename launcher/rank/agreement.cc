#include "launcher/rank/agreement.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/agreement.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe_text.h"

namespace strata::launcher {

using comm::agree;
using comm::AgreedError;

runtime::Recipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                            comm::World& world, bool trains) {
  runtime::Recipe recipe;
  agree(world, [&] {
    std::error_code ignored;
    if (path && world.node_size() < world.size() && !std::filesystem::exists(*path, ignored))
      fail(Exit::usage,
           "recipe {} does not exist here: put it on a file system that all nodes share, or under the same "
           "path on each",
           path->string());
    recipe = runtime::load_recipe(path, sets);
    if (trains) runtime::require_trainable(recipe);
    comm::require_possible(recipe.comm.backend);
  });
  const std::vector<std::string> texts = world.exchange((trains ? "train\n" : "") + runtime::to_text(recipe));
  for (std::size_t r = 1; r < texts.size(); ++r)
    if (texts[r] != texts[0])
      throw AgreedError(Exit::usage,
                        fmt::format("rank {} was given another recipe than rank 0, or another command: start all ranks "
                                    "with the same command, file and --set",
                                    r));
  return recipe;
}

// The number of GPUs that each rank sees does not tell whether ranks share one: a launcher may show every rank only its
// own.
runtime::Seat agree_on_seat(const runtime::Recipe& recipe, comm::World& world) {
  runtime::Seat seat;
  agree(world, [&] { seat = runtime::choose_seat(recipe.device.kind, world.node_rank()); });
  const std::vector<std::string> gpus = world.exchange(seat.gpu);
  if (std::find(gpus.begin(), gpus.end(), "") != gpus.end())
    seat = {};
  else
    seat.sharing = static_cast<int>(std::count(gpus.begin(), gpus.end(), seat.gpu));
  return seat;
}

bool any_rank_stops(const StopSignal& stop, comm::World& world) {
  return std::ranges::any_of(world.exchange(stop.requested() ? "stop" : ""),
                             [](const std::string& text) { return !text.empty(); });
}

}  // namespace strata::launcher

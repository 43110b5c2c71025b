#include "launcher/rank/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "comm/agreement.h"
#include "launcher/screen/printable.h"
#include "runtime/job/micro_batch.h"
#include "runtime/job/seat.h"
#include "runtime/job/suggestion.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe_text.h"

namespace strata::launcher {

using comm::agree;
using comm::AgreedError;

runtime::Recipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                            comm::World& world, bool trains) {
  runtime::Recipe recipe;
  agree(world, [&] {
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

// Whether ranks share a GPU is not to be told from how many each sees: a launcher may show every rank its own alone.
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

void agree_on_micro_batch(runtime::Recipe& recipe, const runtime::Seat& seat, comm::World& world) {
  std::int64_t& size = recipe.training.micro_batch_size;
  if (size != runtime::kAutomaticBatch) return;
  agree(world, [&] {
    if (world.rank() != 0) return;
    runtime::Recipe training = recipe;
    try {
      runtime::settle(training, false);
    } catch (const Error&) {
      // An evaluation may be where the training's data is not.
    }
    const std::string text = runtime::settle_micro_batch(training, world.size(), seat.device);
    if (!text.empty()) note(text);
    size = training.training.micro_batch_size;
  });
  size = std::stoll(world.exchange(std::to_string(size))[0]);
}

runtime::Capacity agree_on_capacity(const runtime::Recipe& recipe, const runtime::Seat& seat, comm::World& world) {
  runtime::Capacity least;
  agree(world, [&] { least = runtime::capacity_here(recipe.memory, world.node_size(), seat); });
  std::string mine;
  std::vector<std::size_t*> all{&least.together};
  for (std::size_t& bytes : least.tier) all.push_back(&bytes);
  for (const std::size_t* bytes : all) mine += std::to_string(*bytes) + " ";
  for (const std::string& text : world.exchange(mine)) {
    const char* at = text.data();
    for (std::size_t* bytes : all) {
      std::size_t theirs = 0;
      at = std::from_chars(at, text.data() + text.size(), theirs).ptr + 1;
      *bytes = std::min(*bytes, theirs);
    }
  }
  return least;
}

runtime::Job plan_job(const runtime::Recipe& recipe, const runtime::Capacity& capacity, comm::World& world,
                      runtime::Purpose purpose) {
  runtime::Job job;
  agree(world, [&] {
    job = runtime::make_job(recipe, world.size(), capacity, purpose);
    if (!runtime::fits(job.plan, capacity))
      fail(Exit::does_not_fit, "{}",
           runtime::refusal(job, capacity, runtime::nearest_that_fit(job, capacity, purpose)));
  });
  return job;
}

void require_same_plan(const runtime::Job& job, comm::World& world) {
  const std::vector<std::string> configs = world.exchange(job.config);
  const std::vector<std::string> plans = world.exchange(fmt::format("{:016x}", runtime::hash_of(job.plan)));
  for (std::size_t r = 1; r < plans.size(); ++r) {
    if (configs[r] != configs[0])
      throw AgreedError(Exit::failed, fmt::format("rank {} reads another config.json than rank 0: give all ranks the "
                                                  "same model.path on the same files",
                                                  r));
    if (plans[r] != plans[0])
      throw AgreedError(Exit::failed, fmt::format("rank {} plans another step than rank 0 (plan {}, not {}): run the "
                                                  "same build on all nodes, and nodes with as many cores",
                                                  r, plans[r], plans[0]));
  }
}

}  // namespace strata::launcher

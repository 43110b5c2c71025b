#include "launcher/rank/planned_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/agreement.h"
#include "comm/exchange_values.h"
#include "launcher/screen/printable.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/search/micro_batch.h"
#include "runtime/job/search/suggestion.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/resume.h"
#include "runtime/run/tokenizer_match.h"

namespace strata::launcher {
namespace {

using comm::agree;
using comm::AgreedError;
using runtime::Purpose;

runtime::Capacity agree_on_capacity(const runtime::Recipe& recipe, const runtime::RankDevice& rank_device,
                                    comm::World& world) {
  runtime::Capacity least;
  agree(world, [&] { least = runtime::capacity_here(recipe.memory, world.node_size(), rank_device); });
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

// The number for training.micro_batch_size = auto in a training run on these ranks, according to the data and
// checkpoints that rank 0 sees.
std::int64_t agree_on_micro_batch(const runtime::Workload& workload, const RunPlanning& planning,
                                  const runtime::RankDevice& rank_device, comm::World& world) {
  std::int64_t size = 0;
  agree(world, [&] {
    if (world.rank() != 0) return;
    runtime::Workload training = workload;
    const bool resolved = planning.purpose == Purpose::train && planning.looks_at_data;
    if (!resolved) (void)resolve_visible_data(training, [](const std::string&) {});
    size = resolve_batch(training, world.size(), rank_device.device);
  });
  return comm::exchange_value(world, size)[0];
}

// Where the run starts, according to the checkpoints that rank 0 sees.
runtime::StartPoint agree_on_start(const runtime::Recipe& recipe, comm::World& world) {
  runtime::StartPoint from;
  if (world.rank() == 0) from = runtime::predict_start(recipe, static_cast<int>(recipe.device.threads.value_or(1)));
  return comm::exchange_value(world, from)[0];
}

// The checkpoint's number of virtual shards, as rank 0 sees it, if the recipe names none.
std::optional<std::int64_t> agree_on_shards(const runtime::Recipe& recipe, comm::World& world, Purpose purpose) {
  const std::int64_t seen = world.rank() == 0 && purpose != Purpose::generate ? runtime::resumed_shards(recipe) : 0;
  const std::int64_t shards = comm::exchange_value(world, seen)[0];
  if (purpose != Purpose::train && world.rank() == 0)
    for (const std::string& text : notes_of_degrees(recipe.parallel)) note(text);
  std::optional<std::int64_t> taken;
  agree(world, [&] { taken = runtime::shards_to_take(recipe, shards, purpose); });
  if (world.rank() == 0 && taken.value_or(1) > 1)
    note(fmt::format("parallel.tensor_shards = {}, as in the checkpoint", *taken));
  return taken;
}

runtime::Job plan_job(const runtime::Workload& workload, const runtime::Capacity& capacity, comm::World& world,
                      Purpose purpose) {
  const runtime::StartPoint from =
      purpose == Purpose::train ? agree_on_start(workload.complete_recipe(), world) : runtime::StartPoint{};
  runtime::Job job;
  agree(world, [&] {
    job = runtime::make_job(workload, world.size(), capacity, purpose, from, world.rank());
    if (!runtime::fits(job.plan, capacity))
      fail(Exit::does_not_fit, "{}",
           runtime::refusal(job, capacity, runtime::nearest_that_fit(job, capacity, purpose)));
  });
  return job;
}

// Ranks on other nodes may read a different config.json, or have a different number of cores.
void require_same_plan(const runtime::Job& job, comm::World& world) {
  const std::vector<std::string> configs = world.exchange(job.config().to_json());
  const std::vector<std::string> plans = world.exchange(fmt::format("{:016x}", runtime::hash_of(job.plan)));
  // The stages of a pipeline have different plans.
  const auto first_of_stage = [&](std::size_t r) {
    const runtime::Mesh& mesh = job.plan.mesh();
    return static_cast<std::size_t>(mesh.rank_of(0, 0, mesh.at(static_cast<int>(r)).stage));
  };
  for (std::size_t r = 1; r < plans.size(); ++r) {
    const std::size_t same = first_of_stage(r);
    if (configs[r] != configs[0])
      throw AgreedError(Exit::failed,
                        fmt::format("rank {} reads a different config.json than rank 0: give all ranks the "
                                    "same model.path on the same files",
                                    r));
    if (plans[r] != plans[same])
      throw AgreedError(Exit::failed, fmt::format("rank {} plans a different step than rank {} (plan {}, not {}): use "
                                                  "the same build and the same number of cores on all nodes",
                                                  r, same, plans[r], plans[same]));
  }
}

void look_at_all_data(const runtime::Recipe& recipe, bool trains) {
  if (trains)
    for (const runtime::DataSource& source : recipe.data.train) runtime::look_at_data(source.files, "data.train");
  if (!recipe.data.validation.empty()) runtime::look_at_data(recipe.data.validation, "data.validation");
}

// Whether all data files of a training run are on this machine.
bool sees_data(const runtime::Recipe& recipe) {
  try {
    look_at_all_data(recipe, true);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

runtime::LoadedRecipe read_recipe(const std::optional<std::filesystem::path>& path, std::span<const std::string> sets,
                                  comm::World& world, bool trains) {
  runtime::LoadedRecipe loaded;
  const runtime::Recipe& recipe = loaded.recipe;
  agree(world, [&] {
    std::error_code ignored;
    if (path && world.node_size() < world.size() && !std::filesystem::exists(*path, ignored))
      fail(Exit::usage,
           "recipe {} does not exist here: put it on a file system that all nodes share, or under the same "
           "path on each",
           path->string());
    loaded = runtime::load_with_notes(path, sets);
    if (trains) runtime::require_trainable(recipe);
    comm::require_possible(recipe.comm.backend);
  });
  const std::vector<std::string> texts = world.exchange((trains ? "train\n" : "") + runtime::to_text(recipe));
  for (std::size_t r = 1; r < texts.size(); ++r)
    if (texts[r] != texts[0])
      throw AgreedError(Exit::usage,
                        fmt::format("rank {} was given a different recipe or command than rank 0: start all ranks "
                                    "with the same command, file and --set",
                                    r));
  return loaded;
}

// The number of GPUs that each rank sees does not tell whether ranks share one, because a launcher may show every rank
// only its own GPU.
runtime::RankDevice agree_on_rank_device(const runtime::Recipe& recipe, comm::World& world) {
  runtime::RankDevice rank_device;
  agree(world, [&] { rank_device = runtime::choose_rank_device(recipe.device.kind, world.node_rank()); });
  const std::vector<std::string> gpus = world.exchange(rank_device.gpu);
  if (std::find(gpus.begin(), gpus.end(), "") != gpus.end())
    rank_device = {};
  else
    rank_device.sharing = static_cast<int>(std::count(gpus.begin(), gpus.end(), rank_device.gpu));
  return rank_device;
}

PlannedRun plan_run(const runtime::Recipe& recipe, comm::World& world, const RunPlanning& planning) {
  runtime::Workload workload;
  agree(world, [&] { workload = runtime::open_workload(recipe); });
  return plan_run(std::move(workload), world, planning);
}

PlannedRun plan_run(runtime::Workload workload, comm::World& world, const RunPlanning& planning) {
  PlannedRun run{agree_on_rank_device(workload.recipe, world), {}, {}, {}};
  workload.nodes = world.nodes();
  // Must come before any data is in memory.
  run.capacity = agree_on_capacity(workload.recipe, run.rank_device, world);
  const bool generates = planning.purpose == Purpose::generate;
  const auto resolve = [&] {
    if (!planning.looks_at_data || generates) return;
    const bool trains = planning.purpose == Purpose::train;
    agree(world, [&] {
      runtime::require_tokens_of_model(workload, trains);
      run.data = runtime::resolve_workload(workload, !trains);
    });
  };
  // Training resolves its batch from its data. An evaluation takes the batch of the training run, which is resolved
  // differently.
  if (planning.purpose == Purpose::train) resolve();
  workload.resolved.tensor_shards = agree_on_shards(workload.recipe, world, planning.purpose);
  if (!generates && workload.recipe.training.micro_batch_size == runtime::kAutomaticBatch)
    workload = workload.with(
        runtime::with_micro_batch(workload.recipe, agree_on_micro_batch(workload, planning, run.rank_device, world)));
  if (planning.purpose == Purpose::evaluate) resolve();
  if (planning.adjust) planning.adjust(workload, run.capacity);
  run.job = plan_job(workload, run.capacity, world, planning.purpose);
  require_same_plan(run.job, world);
  return run;
}

std::vector<std::string> notes_of_degrees(const runtime::Recipe::Parallel& parallel) {
  std::vector<std::string> notes;
  const auto add = [&](std::string_view key, int degree) {
    if (degree > 1)
      notes.push_back(fmt::format("{} = {} has no effect: only training divides the model over ranks", key, degree));
  };
  add("parallel.tensor", parallel.tensor);
  add("parallel.stages", parallel.stages);
  return notes;
}

void require_data(const runtime::Recipe& recipe, bool trains, comm::World& world) {
  agree(world, [&] { look_at_all_data(recipe, trains); });
}

runtime::OpenedData resolve_visible_data(runtime::Workload& workload, const Note& note) {
  try {
    return runtime::resolve_workload(workload, false);
  } catch (const Error& error) {
    if (error.code() == Exit::usage && sees_data(workload.recipe)) throw;
    note(fmt::format("the index of packed documents is not counted: {}", error.what()));
    return {};
  }
}

std::int64_t resolve_batch(const runtime::Workload& workload, int ranks, device::Device device) {
  const auto [size, text] = runtime::resolve_micro_batch(workload, ranks, device);
  if (!text.empty()) note(text);
  return size;
}

}  // namespace strata::launcher

#include "runtime/job/make_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/host/host.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "models/files/config.h"
#include "runtime/job/capacity.h"
#include "runtime/job/choices.h"
#include "runtime/job/requirements.h"
#include "runtime/job/stage_planner.h"

namespace strata::runtime {
namespace {

// A sentence about the tensors that full training trains if the model's files hold matrices in 4 bits.
std::string note_of_quantised_files(const models::Model& model) {
  return fmt::format(
      "the model's files hold its linear layers in 4 bits, and those of blocks stay frozen: {} of {} parameters are "
      "trained (tables, norms, biases, the head); adapter.kind = \"lora\" trains an adapter on top of them",
      model.trained_parameters(), model.parameters());
}

// Prompt tokens per forward pass: enough rows for products to reach full speed.
constexpr std::size_t kPromptRows = 128;

// The rows of a micro-batch that enter the loss, if `of_sequence` rows of each sequence do.
std::size_t loss_rows(std::uint64_t of_sequence, const Recipe& recipe) {
  constexpr std::uint64_t kGrain = 16;  // rows of a product
  const auto sequences = static_cast<std::uint64_t>(recipe.training.micro_batch_size);
  const std::uint64_t rows = (of_sequence * sequences + kGrain - 1) / kGrain * kGrain;
  return std::min(rows, sequences * static_cast<std::uint64_t>(recipe.data.seq_len));
}

// Whether the run trains only a part of the model. Otherwise an evaluation quantises all of it.
bool trains_a_part(const Workload& workload) {
  return !workload.recipe.training.freeze.empty() || workload.adapter().kind != AdapterKind::none;
}

int cores_of_machine() {
  return cores_within(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), cpu_quota());
}

// The maximum number of stages that are planned in parallel: each takes memory for its tasks.
constexpr int kMaxPlanners = 8;

models::RunShape shape_of(const Workload& workload, const device::Device& device, Purpose purpose,
                          int tensor_rank = 0) {
  const Recipe& recipe = workload.recipe;
  const std::optional<device::StorageFormat> quantised = workload.quantised();
  const bool all_quantised = quantised && purpose != Purpose::train && !trains_a_part(workload);
  const std::vector<std::string> freeze = all_quantised ? std::vector<std::string>{"*"} : recipe.training.freeze;
  const int threads = std::max(cores_of_machine(), static_cast<int>(recipe.device.threads.value_or(1)));
  if (purpose == Purpose::generate) {
    const auto cache = static_cast<std::size_t>(recipe.data.seq_len);
    models::RunShape shape{
        1,     std::min(kPromptRows, cache), recipe.training.precision, threads, false, cache, device,
        false, workload.objective()};
    shape.freeze = freeze;
    shape.adapter = workload.adapter().shared();
    shape.quantise = quantised;
    return shape;
  }
  const bool trains = purpose == Purpose::train;
  models::RunShape shape{static_cast<std::size_t>(recipe.training.micro_batch_size),
                         static_cast<std::size_t>(recipe.data.seq_len),
                         recipe.training.precision,
                         threads,
                         trains,
                         0,
                         device,
                         workload.packing() == Packing::documents,
                         workload.objective(),
                         loss_rows(trains ? workload.data.loss_rows : workload.data.validation_loss_rows, recipe),
                         {recipe.training.class_weights.begin(), recipe.training.class_weights.end()},
                         freeze,
                         workload.adapter().shared(),
                         quantised};
  const std::size_t shards = workload.shards(), own = shards / static_cast<std::size_t>(recipe.parallel.tensor);
  shape.shards = {static_cast<std::size_t>(tensor_rank) * own, own, shards};
  shape.sequence = recipe.parallel.sequence;
  return shape;
}

bool in_groups(const Recipe::Zero& zero) {
  return zero.parameters_group != kAllRanks || zero.gradients_group != kAllRanks || zero.optimizer_group != kAllRanks;
}

}  // namespace

std::int64_t micro_batches_of(const Recipe& recipe, int ranks, Purpose purpose) {
  return purpose == Purpose::train ? recipe.accumulation_steps(ranks) : 1;
}

bool will_evaluate(const Recipe& recipe, const StartPoint& from) {
  const Recipe::Evaluation& evaluation = recipe.evaluation;
  if (from.step == 0 && evaluation.at_start && !from.evaluated) return true;
  if (evaluation.every == 0) return false;
  if (from.step > 0 && from.step % evaluation.every == 0 && !from.evaluated) return true;
  const std::int64_t next = (from.step / evaluation.every + 1) * evaluation.every;
  return next <= recipe.training.max_steps.value_or(next);
}

std::vector<Job> jobs_of_stages(const Workload& workload, int ranks, const Capacity& capacity) {
  std::vector<Job> jobs;
  jobs.push_back(make_job(workload, ranks, capacity));
  for (Job& later : jobs_of_later_stages(jobs[0], capacity)) jobs.push_back(std::move(later));
  return jobs;
}

std::vector<Job> jobs_of_later_stages(const Job& first, const Capacity& capacity) {
  const Mesh mesh = first.plan.mesh();
  std::vector<Job> jobs(static_cast<std::size_t>(mesh.stages - 1));
  parallel(jobs.size(), std::min(cores_of_machine(), kMaxPlanners), [&](std::size_t i) {
    const int rank = mesh.rank_of(0, 0, static_cast<int>(i) + 1);
    jobs[i] = make_job(first, first.ranks, capacity, Purpose::train, {}, rank, first.plan.pieces);
  });
  return jobs;
}

namespace {

// Throws Error{usage} if the recipe asks for something that its model does not allow. Adds the notes about the model.
void check_model(Job& job, const models::RunShape& shape, const models::Config& config) {
  const Recipe& recipe = job.recipe;
  const bool trains = shape.training;
  if (shape.divides_rows()) require_divisible_rows(recipe, *job.model);
  if (recipe.parallel.sequence && recipe.parallel.tensor == 1 && trains)
    job.notes.push_back("parallel.sequence = true has no effect with parallel.tensor = 1");
  if (recipe.parallel.schedule == Schedule::all_forward_all_backward && recipe.parallel.stages == 1 && trains)
    job.notes.push_back("parallel.schedule = \"all_forward_all_backward\" has no effect with parallel.stages = 1");
  if (trains && job.has_adapter_of_checkpoint())
    fail(Exit::usage,
         "model.path = {} is a checkpoint with an adapter: continue it with checkpoint.resume and its own recipe, or "
         "give its base model",
         job.model_path()->string());
  if (shape.adapter)
    require_adaptable(*job.model, *shape.adapter,
                      job.has_adapter_of_checkpoint() ? job.model_path() : job.adapter().path, job.model_path());
  else if (trains)
    require_freezable(*job.model, recipe.training.freeze);
  if (trains)
    if (auto note = note_of_high_ranks(*job.model)) job.notes.push_back(*std::move(note));
  if (shape.quantise) require_quantised(*job.model);
  if (shape.shards.of > 1) require_whole_scales(*job.model, shape.shards);
  if (trains && job.model->quantised_in_files && !shape.adapter && recipe.training.freeze.empty())
    job.notes.push_back(note_of_quantised_files(*job.model));
  job.notes.insert(job.notes.end(), config.notes().begin(), config.notes().end());
  if (trains && recipe.evaluation.prompts && job.model->objective != models::Objective::causal_lm)
    fail(Exit::usage,
         "evaluation.prompts = {} need answers, but a model for training.objective = \"{}\" does not generate text: "
         "leave evaluation.prompts out",
         recipe.evaluation.prompts->string(), models::name_of(job.model->objective));
}

// `all_waits`: derives the waits even of a plan that does not fit.
Job plan_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose, const StartPoint& from,
             int rank, std::vector<UnitRange> split, bool all_waits) {
  const Recipe& recipe = workload.recipe;
  // Groups and stages matter in training only.
  if (purpose != Purpose::train && (in_groups(recipe.zero) || recipe.parallel.replica() > 1)) {
    Recipe without = recipe;
    without.zero.parameters_group = without.zero.gradients_group = without.zero.optimizer_group = kAllRanks;
    without.parallel = {};
    without.parallel.tensor_shards = static_cast<std::int64_t>(workload.shards());
    return plan_job(workload.with(std::move(without)), ranks, capacity, purpose, from, 0, {}, all_waits);
  }
  const bool trains = purpose == Purpose::train;
  const models::Config config = workload.config();
  require_mesh(recipe, workload.shards(), ranks);
  const Mesh mesh{ranks, {}, ranks_per_node(workload.nodes, ranks), recipe.parallel.tensor, recipe.parallel.stages};
  const int tensor_rank = mesh.at(rank).tensor;
  const models::RunShape shape = shape_of(workload, capacity.device, purpose, tensor_rank);
  Job job{workload, ranks, models::make_model(config, shape), {}, workload.data.notes};
  if (trains) require_stages(recipe, ranks);
  job.resolved.objective = job.model->objective;
  if (shape.shards.of > 1) job.resolved.tensor_shards = static_cast<std::int64_t>(shape.shards.of);
  check_model(job, shape, config);
  require_groups(recipe.zero, mesh, workload.nodes);
  for (std::string& note : notes_of_groups(recipe.zero)) job.notes.push_back(std::move(note));
  std::optional<BetweenSteps> evaluation, generation;
  if (trains && will_evaluate(recipe, from)) {
    evaluation.emplace(config, workload.data, shape_of(workload, capacity.device, Purpose::evaluate, tensor_rank));
    if (recipe.evaluation.prompts) {
      models::RunShape answers = shape_of(workload, capacity.device, Purpose::generate);
      answers.shards = shape.shards;  // the shards in which training has its parameters
      generation.emplace(config, workload.data, answers);
    }
  }
  require_plannable(recipe, job.model->units.size(), micro_batches_of(recipe, ranks, purpose), ranks);
  if (trains) require_whole_runs(recipe, ranks);
  const bool both_orders =
      recipe.memory.order == AccumulationOrder::automatic && mesh.stages == 1 && trains &&
      recipe.accumulation_steps(ranks) > 1 &&
      calls_of(recipe, job.model->units.size(), micro_batches_of(recipe, ranks, purpose)) <= kMaxVerticalCalls;
  const StagePlanner planner{workload, config,     *job.model, shape,       mesh,
                             capacity, evaluation, generation, both_orders, all_waits};
  if (mesh.stages > 1 && split.empty()) {
    const auto whole = [&](const Recipe& few) { return planner.whole(few); };
    const auto plan_few = [&](const Recipe& few, int stage, const std::vector<UnitRange>& pieces) {
      StepPlan plan = planner.plan(few, stage, pieces);
      const std::size_t excess = bytes_above(plan, capacity);
      return StagePlan{std::move(plan), excess};
    };
    ChosenSplit chosen = choose_split(recipe, *job.model, ranks, whole, plan_few);
    split = std::move(chosen.pieces);
    job.split_tasks = chosen.tasks;
  }
  job.plan = planner.plan(recipe, mesh.at(rank).stage, split);
  if (recipe.memory.tile && job.plan.tile_bytes == 0 && trains)
    job.notes.push_back(fmt::format("memory.tile = {} has no effect: {}", bytes_text(*recipe.memory.tile),
                                    shape.shards.of > 1
                                        ? "layers in virtual shards (parallel.tensor, parallel.tensor_shards) are not "
                                          "run in tiles"
                                        : "no unit that can be tiled is larger, or parameters are neither sharded nor "
                                          "offloaded (see zero.stage and zero.parameters)"));
  if (auto note = note_of_runs(job.plan); note && trains) job.notes.push_back(*std::move(note));
  if (auto note = note_of_layers_over_nodes(mesh, workload.nodes)) job.notes.push_back(*std::move(note));
  if (evaluation) job.evaluation = std::move(*evaluation).job(job);
  if (generation) job.generation = std::move(*generation).job(job);
  return job;
}

}  // namespace

Job make_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose, const StartPoint& from,
             int rank, std::vector<UnitRange> split) {
  return plan_job(workload, ranks, capacity, purpose, from, rank, std::move(split), true);
}

Job draft_job(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose) {
  return plan_job(workload, ranks, capacity, purpose, {}, 0, {}, false);
}

std::optional<Memory> memory_of_stages(const Job& job, const Capacity& capacity) {
  if (!fits(job.plan, capacity)) return std::nullopt;
  Memory most = job.plan.memory;
  const Mesh& mesh = job.plan.mesh();
  for (int stage = 0; stage < mesh.stages; ++stage) {
    if (stage == job.plan.stage) continue;
    const int rank = mesh.rank_of(0, 0, stage);
    const StepPlan plan = make_job(job, job.ranks, capacity, Purpose::train, {}, rank, job.plan.pieces).plan;
    if (!fits(plan, capacity)) return std::nullopt;
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      if (plan.memory[tier].peak > most[tier].peak) most[tier] = plan.memory[tier];
  }
  return most;
}

}  // namespace strata::runtime

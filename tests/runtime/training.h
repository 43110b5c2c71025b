#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/index.h"
#include "comm/communicator.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/capacity.h"
#include "runtime/job/make_job.h"
#include "runtime/objective/objective.h"
#include "runtime/planner/planner.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/periodic_evaluation.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/trainer.h"
#include "tests/comm/run_threads.h"

namespace strata::runtime {

// The results of a run, for comparison.
struct Trained {
  std::vector<StepReport> steps;
  std::vector<std::string> loss_hex, evaluations;  // the latter's losses, exact, if the recipe asks for any
  std::string weights_hash;
  bool memory_as_planned, bytes_as_planned;
  std::int64_t graph_steps;
  std::string graph_refusal;
};

inline std::string hex(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

// The job's plan with units above `tile_bytes` gathered in tiles, even if memory suffices, and updates in chunks of
// `update_chunk` elements; 0: as in the job.
inline StepPlan plan_in_pieces(const Job& job, std::size_t tile_bytes, std::size_t update_chunk, int rank) {
  const Recipe& r = job.recipe;
  const models::RunShape shape{static_cast<std::size_t>(r.training.micro_batch_size),
                               static_cast<std::size_t>(r.data.seq_len),
                               r.training.precision,
                               1,
                               true,
                               0,
                               job.plan.device};
  PlanRequest request{job.model.get(), shape, job.plan.mesh(), job.plan.accumulation,
                      placement_of(r.zero, job.plan.mesh().node)};
  request.fast = r.training.reduce == Reduce::fast;
  request.reduce_group = static_cast<int>(r.training.reduce_group);
  request.vertical = job.plan.vertical;
  request.prefetch = static_cast<int>(r.memory.prefetch);
  request.segments = segments_of(r.training.recompute, *job.model);
  if (job.plan.mesh().stages > 1) {
    request.pieces = job.plan.pieces;
    request.schedule = r.parallel.schedule;
    request.stage = job.plan.mesh().at(rank).stage;
    request.segments = within(request.segments, job.plan.own);
  }
  request.algorithm = r.optimizer.algorithm();
  request.moments = r.optimizer.moment_format();
  request.tile_bytes = tile_bytes;
  request.read_ahead = r.zero.optimizer == Tier::nvme;
  if (update_chunk) request.update_chunk = update_chunk;
  return make_plan(request);
}

// Trains the recipe on `ranks` ranks, which are threads of this process. A single rank on a GPU has no staged
// collectives, like a program of one rank. `after` gets each rank's trainer at the end, `before_step` before each step.
// tile_bytes or update_chunk above 0: as in plan_in_pieces. `nodes`: the ranks' nodes (comm::run_threads).
inline Trained train_in_threads(const std::optional<std::filesystem::path>& path, const std::vector<std::string>& sets,
                                int ranks, const std::function<void(Trainer&, const Job&, int rank)>& after = {},
                                std::size_t tile_bytes = 0, std::size_t update_chunk = 0,
                                const std::function<void(Trainer&)>& before_step = {},
                                const std::vector<int>& nodes = {}) {
  Workload workload = open_workload(load_recipe(path, sets));
  const Recipe& recipe = workload.recipe;
  resolve_objective(workload);
  const bool evaluates = recipe.evaluation.every > 0;
  if (workload.data.loss_rows > 0 || evaluates) resolve_workload(workload, evaluates);
  workload.nodes = nodes;
  // The device is the CPU unless the test says otherwise, even if there is a GPU.
  const RankDevice rank_device =
      recipe.device.kind == DeviceKind::cuda ? planned_rank_device(recipe.device.kind) : RankDevice{};
  Trained result;
  const auto run = [&](comm::World& world) {
    // Its own: a product belongs to one compute lane.
    Job job = make_job(workload, ranks, capacity_of(recipe.memory, 1, rank_device), Purpose::train, {}, world.rank());
    if (tile_bytes || update_chunk) job.plan = plan_in_pieces(job, tile_bytes, update_chunk, world.rank());
    // Real runs require this too.
    const std::vector<std::string> plans = world.exchange(fmt::format("{:016x}", hash_of(job.plan)));
    const Mesh& mesh = job.plan.mesh();
    EXPECT_EQ(plans[index(world.rank())], plans[index(mesh.rank_of(0, 0, mesh.at(world.rank()).stage))])
        << "rank " << world.rank() << " plans a different step than the first rank of its stage";
    const auto threads = static_cast<int>(recipe.device.threads.value_or(1));
    Trainer trainer(job, world, threads);
    trainer.load_initial_weights(threads);
    std::vector<StepReport> steps;
    std::optional<PeriodicEvaluation> evaluation;
    if (job.evaluation) evaluation.emplace(job, world, trainer);
    std::vector<std::string> evaluations;
    while (!trainer.done()) {
      if (before_step) before_step(trainer);
      steps.push_back(trainer.step(false));
      if (evaluation && evaluation->due())
        evaluations.push_back(hex(evaluation->run([](std::uint64_t, std::uint64_t) { return true; })->loss));
    }
    const std::string hash = trainer.weights_hash();  // drains
    if (after) after(trainer, job, world.rank());
    if (world.rank() != 0) return;
    result.steps = steps;
    for (const StepReport& step : steps) result.loss_hex.push_back(hex(step.loss));
    result.evaluations = evaluations;
    result.weights_hash = hash;
    const Memory& measured = trainer.executor().measured_memory();
    result.memory_as_planned = memory_json(measured, nullptr) == memory_json(job.plan.memory, nullptr);
    const comm::CommBytes sent = trainer.executor().comm_bytes().per_step(trainer.steps_done());
    const IoBytes moved = trainer.executor().io_bytes().per_step(trainer.steps_done());
    result.bytes_as_planned =
        comm_json(sent) == comm_json(job.plan.comm_bytes) && io_json(moved) == io_json(job.plan.io_bytes);
    result.graph_steps = trainer.executor().graph_steps();
    result.graph_refusal = trainer.executor().graph_refusal();
  };
  if (ranks == 1 && recipe.device.kind == DeviceKind::cuda)
    run(*comm::solo_world());
  else
    comm::run_threads(ranks, run, nodes);
  return result;
}

}  // namespace strata::runtime

#include "launcher/commands/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json/json_writer.h"
#include "base/quantity.h"
#include "comm/communicator.h"
#include "device/gpu.h"
#include "launcher/commands/commands.h"
#include "launcher/control/service/endpoints.h"
#include "launcher/forecast.h"
#include "launcher/outputs.h"
#include "launcher/rank/cores.h"
#include "launcher/rank/planned_run.h"
#include "launcher/rank/run_as_rank.h"
#include "launcher/report/report.h"
#include "launcher/screen/printable.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/forecast/simulator.h"
#include "runtime/job/capacity.h"
#include "runtime/job/make_job.h"
#include "runtime/job/requirements.h"
#include "runtime/job/search/suggestion.h"
#include "runtime/objective/objective.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/recipe.h"
#include "runtime/run/reports/report.h"
#include "runtime/run/resume.h"

namespace strata::launcher {
namespace {

// [{"zero.stage":3}, ...]: for each suggestion, the keys to change and their values.
JsonArray nearest_json(const std::vector<runtime::Suggestion>& nearest) {
  JsonArray out;
  for (const runtime::Suggestion& s : nearest) {
    JsonObject changes;
    for (const auto& [key, value] : s.changes) changes.add(key, JsonText{value});
    out.add(changes);
  }
  return out;
}

// Prints the free space in the recipe's folders that exist here. Too little space is not a reason to refuse, because
// the run may be planned for another day.
void print_drives(const runtime::Job& job) {
  const std::size_t needed = job.plan.memory[static_cast<std::size_t>(runtime::Tier::nvme)].peak;
  std::size_t free = 0;
  for (const auto& folder : job.recipe.memory.nvme) {
    std::error_code error;
    const auto space = std::filesystem::space(folder, error);
    if (needed == 0 || error) return;
    free += space.available;
  }
  if (needed > 0 && free < needed)
    fmt::print("nvme: memory.nvme has {} free here: too little for one rank\n", bytes_text(free));
}

// The number of training tasks of each kind. The host's tasks between steps and tasks for checkpoints do not count.
using TaskCounts = std::array<std::size_t, runtime::kTaskKinds>;
TaskCounts count_tasks(const runtime::StepPlan& plan) {
  TaskCounts counts{};
  for (const runtime::Task& task : plan.tasks)
    if (static_cast<std::size_t>(task.lane) < runtime::kTrainingLanes) ++counts[static_cast<std::size_t>(task.kind)];
  return counts;
}

// How many of the run's ranks share one machine like this one, or like that of the machine file: the number of its
// cores, or of its GPUs if the run uses them; the number of ranks in the file if the file has a network.
int ranks_on_a_node(const PlanOptions& options, int ranks, const std::optional<runtime::Machine>& machine,
                    runtime::RankDevice& rank_device) {
  const auto found = device::find_gpus().gpus;
  const auto usable = [](const device::Gpu& gpu) { return gpu.problem.empty(); };
  const auto gpus = static_cast<int>(std::count_if(found.begin(), found.end(), usable));
  const bool on_gpus = rank_device.device.kind != device::Kind::cpu && gpus > 0;
  const bool has_nodes = machine && (machine->gpu || machine->network);
  const int cores = !machine ? cores_here() : has_nodes ? machine->ranks : machine->ranks * machine->threads;
  const int most = options.ranks_per_node ? *options.ranks_per_node : on_gpus ? gpus : cores;
  const int here = std::min(ranks, most);
  if (on_gpus) rank_device.sharing = (here + gpus - 1) / gpus;
  return here;
}

// "8 ranks on 4 machines like this one, 2 on each, each with its part of the free memory".
std::string sharing_text(const runtime::Job& job, int ranks_per_node, const std::optional<runtime::Machine>& machine) {
  const char* kind = machine ? "the machine file's" : "this one";
  const int machines = (job.ranks + ranks_per_node - 1) / ranks_per_node;
  const bool evenly = job.ranks % ranks_per_node == 0;
  const std::string where = machines == 1 ? fmt::format("on one machine like {}", kind)
                                          : fmt::format("on {} machines like {}, {}{} on each", machines, kind,
                                                        evenly ? "" : "up to ", ranks_per_node);
  const auto& memory = job.recipe.memory;
  return fmt::format("{} {} (--ranks-per-node), {}", counted(job.ranks, "rank"), where,
                     machine && machine->capacity   ? "with the memory of the machine file or memory.*"
                     : memory.device && memory.host ? "with the memory of memory.device and memory.host"
                     : memory.device || memory.host ? "each with its part of the free memory, or with that of memory.*"
                                                    : "each with its part of the free memory");
}

// "RAM (device)": the physical memory of a tier of this plan.
std::string tier_text(const runtime::StepPlan& plan, std::size_t tier) {
  const bool ram = tier == 0 && plan.device.kind == device::Kind::cpu;
  return ram ? "RAM (device)" : std::string(runtime::kTierNames[tier]);
}

// Whether two tiers of this plan share one physical memory, which is then counted for each of them.
bool same_memory(const runtime::StepPlan& plan, const runtime::Capacity& capacity) {
  const std::size_t ram = capacity[runtime::Tier::device], host = capacity[runtime::Tier::host];
  return plan.device.kind == device::Kind::cpu && plan.memory[0].peak > 0 && plan.memory[1].peak > 0 &&
         (capacity.together < ram || capacity.together - ram < host);
}

// "sent per rank and step: 20.0 MiB (all-gather ...), 16.0 MiB of it in its node and 4.0 MiB to other nodes".
std::string sent_text(const runtime::StepPlan& plan) {
  const comm::CommBytes& sent = plan.comm_bytes;
  std::string text =
      fmt::format("sent per rank and step: {} (all-gather {}, all-to-all {}, consensus {}", bytes_text(sent.total()),
                  bytes_text(sent.all_gather), bytes_text(sent.all_to_all), bytes_text(sent.consensus));
  if (sent.point_to_point > 0) text += fmt::format(", point-to-point {}", bytes_text(sent.point_to_point));
  text += ")";
  const runtime::Mesh& mesh = plan.mesh();
  if (mesh.node == 0)
    text += ", between nodes that differ";
  else if (mesh.node < mesh.world)
    text +=
        fmt::format(", {} of it in its node of {} and {} to other nodes", bytes_text(sent.total() - sent.between_nodes),
                    counted(mesh.node, "rank"), bytes_text(sent.between_nodes));
  return text;
}

// Describes the state of which groups of ranks hold copies (zero.*_group); empty if there are no groups.
std::string copies_text(const runtime::StepPlan& plan) {
  const runtime::Mesh& mesh = plan.mesh();
  std::string text;
  const auto add = [&](std::string_view what, const runtime::StatePlacement& state) {
    const int pieces = state.pieces(mesh);
    if (!state.sharded() || pieces == mesh.data()) return;
    text += fmt::format("{}{} of {}, each over {}", text.empty() ? "in groups: " : "; ",
                        counted(mesh.data() / pieces, "copy", "copies"), what, counted(pieces, "rank"));
  };
  add("the parameters", plan.placement.parameters);
  add("the sums of gradients", plan.placement.gradients);
  add("the optimizer's state", plan.placement.optimizer);
  return text;
}

void print_task_counts(const runtime::StepPlan& plan) {
  const TaskCounts counts = count_tasks(plan);
  std::string text = fmt::format("{} tasks per step:", std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  for (std::size_t k = 0; k < counts.size(); ++k)
    if (counts[k]) text += fmt::format(" {} {}", counts[k], runtime::kTaskTraits[k].name);
  fmt::print("{}\n", folded(text, 2));
}

using Rows = std::vector<std::vector<std::string>>;

void add_row(Rows& rows, std::string what, const runtime::TierMemory& memory, std::string capacity) {
  auto& row = rows.emplace_back();
  row = {std::move(what), bytes_text(memory.peak), std::move(capacity)};
  for (const std::size_t bytes : memory.by_kind) row.push_back(bytes_text(bytes));
}

// Adds a row for work between two steps, during which the state stays in memory. Its peak counts towards the plan's.
void add_between_steps(Rows& rows, const char* what, const runtime::Job* job, std::size_t tier) {
  if (job == nullptr || job->plan.memory[tier].peak == 0) return;
  add_row(rows, what, job->plan.memory[tier], "");
}

void print_table(const runtime::Job& job, const PlanSetup& setup, const PlanOptions& options) {
  const runtime::Capacity& capacity = setup.capacity;
  const runtime::StepPlan& plan = job.plan;
  const std::string shape =
      fmt::format("{} of {} parameters on {}: ZeRO-{}, {}, {} of {} x {} tokens per rank and step, {}",
                  job.model->family, count_text(job.model->parameters()), counted(plan.ranks(), "rank"),
                  job.recipe.zero.stage, device::name_of(plan.dtype),
                  counted(plan.accumulation, "micro-batch", "micro-batches"), job.recipe.training.micro_batch_size,
                  job.recipe.data.seq_len, fmt::format("{} order", runtime::order_name(plan)));
  fmt::print("{}\n{}\n\n", folded(shape), folded(runtime::shards_text(job.shards()), 2));
  if (plan.tile_bytes) fmt::print("{}\n\n", folded(runtime::tiling_text(plan)));
  Rows rows = {{whose_text(job, options.rank), "peak", "capacity"}};
  for (const auto kind : runtime::kKindNames) rows[0].emplace_back(kind);
  for (std::size_t tier = 0; tier < runtime::kTiers; ++tier) {
    const runtime::TierMemory& memory = plan.memory[tier];
    if (memory.peak == 0) continue;
    add_row(rows, tier_text(plan, tier), memory,
            capacity.tier[tier] == std::numeric_limits<std::size_t>::max() ? "the drives'"
                                                                           : bytes_text(capacity.tier[tier]));
    add_between_steps(rows, "  evaluation", job.evaluation.get(), tier);
    add_between_steps(rows, "  prompts", job.generation.get(), tier);
  }
  fmt::print("{}", table(rows));
  fmt::print(
      "{}\n",
      folded("Each column is the maximum of its kind. Buffers that never live at the same time share memory, so the "
             "columns add up to more than the peak."));
  if (same_memory(plan, capacity))
    fmt::print("RAM (device) and host are the same memory: {} are available for both.\n",
               bytes_text(capacity.together));
  if (plan.ranks() > 1)
    fmt::print("{}\n", folded("capacity: " + sharing_text(job, setup.ranks_per_node, setup.machine), 2));
  print_drives(job);
  fmt::print("\n{}\n", folded(sent_text(plan), 2));
  if (const std::string copies = copies_text(plan); !copies.empty()) fmt::print("{}\n", folded(copies, 2));
  const auto& [read, written] = job.plan.io_bytes;
  for (std::size_t tier = 1; tier < runtime::kTiers; ++tier)
    if (read[tier] + written[tier])
      fmt::print("moved per rank and step: {} from {}, {} to it\n", bytes_text(read[tier]), runtime::kTierNames[tier],
                 bytes_text(written[tier]));
}

// Prints facts about the training data if it is on this machine.
void print_epoch(const runtime::Job& job, runtime::OpenedData data) {
  const auto sequences = runtime::training_sequences(job.recipe, job.packing(), std::move(data),
                                                     static_cast<std::int64_t>(job.model->vocabulary));
  if (!sequences) return;
  const auto per_step =
      static_cast<std::uint64_t>(job.recipe.training.micro_batch_size * job.plan.accumulation * job.plan.mesh().data());
  fmt::print("an epoch is {}: {} of {} tokens, {} per step\n", counted((*sequences + per_step - 1) / per_step, "step"),
             counted(*sequences, "sequence"), job.recipe.data.seq_len, per_step);
}

// Writes one page with the recipe's stage and, for comparison, the other stages.
void write_page(const PlanOptions& options, const runtime::Job& job, const std::vector<ZeroStage>& stages,
                const PlanSetup& setup) {
  const auto& machine = setup.machine;
  const std::string speeds = speeds_text(machine.has_value(), machine && machine->measured);
  JsonArray all;
  for (const ZeroStage& stage : stages) {
    if (!stage.groups.empty()) continue;
    const runtime::MachineProfile profile = profile_for(machine, stage.job, setup.ranks_per_node);
    all.add(
        JsonText{plan_data(stage.job, setup.capacity, profile, runtime::simulate(stage.job.plan, profile), speeds)});
  }
  const std::string title = fmt::format("{} of {} parameters on {}", job.model->family,
                                        count_text(job.model->parameters()), counted(job.ranks, "rank"));
  const std::string subtitle =
      fmt::format("{}, {} of {} x {} tokens per rank and step", device::name_of(job.plan.dtype),
                  counted(job.plan.accumulation, "micro-batch", "micro-batches"), job.recipe.training.micro_batch_size,
                  job.recipe.data.seq_len);
  AtomicFile file(*options.html);
  file.write(page_html(Page::plan, JsonObject()
                                       .add("title", title)
                                       .add("subtitle", subtitle)
                                       .add("stage", job.recipe.zero.stage)
                                       .add("speeds", speeds)
                                       .add("stages", all)
                                       .add("recipe", runtime::to_toml(job.complete_recipe()))
                                       .text()));
  file.commit();
}

// The recipe, with keys that it leaves open taken from a machine file of another machine.
runtime::Recipe recipe_for(const std::optional<runtime::Machine>& machine, runtime::Recipe recipe) {
  if (!machine) return recipe;
  if (machine->gpu && recipe.device.kind == runtime::DeviceKind::automatic)
    recipe.device.kind = runtime::DeviceKind::cuda;
  if (!machine->capacity) return recipe;
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  auto &device = recipe.memory.device, &host = recipe.memory.host;
  if (!device) device = static_cast<std::uint64_t>(machine->capacity->device_gib * kGiB);
  if (!host) host = static_cast<std::uint64_t>(machine->capacity->host_gib * kGiB);
  return recipe;
}

}  // namespace

int plan(const PlanOptions& options) {
  const int ranks = options.ranks.value_or(left_over_rank().empty() ? std::max(1, comm::launched_ranks()) : 1);
  const runtime::LoadedRecipe loaded = runtime::load_with_notes(options.recipe, options.sets);
  const runtime::Recipe& asked = loaded.recipe;
  runtime::require_evaluable(asked);
  control::require_guarded(asked.control);
  std::vector<NamedFile> outputs, inputs = inputs_of(asked, options.recipe);
  if (options.json) outputs.push_back({"--json", *options.json});
  if (options.trace) outputs.push_back({"--trace", *options.trace});
  if (options.html) outputs.push_back({"--html", *options.html});
  if (options.machine) inputs.push_back({"--machine", *options.machine});
  require_apart(outputs, inputs);
  require_outside_checkpoints(outputs, asked);
  if (options.json) require_own({"--json", *options.json}, Content::plan, options.force);
  if (options.trace) require_own({"--trace", *options.trace}, Content::trace, options.force);
  runtime::Workload workload = runtime::open_workload(asked);
  runtime::resolve_objective(workload);
  std::string said;
  runtime::OpenedData data = resolve_visible_data(workload, [&](const std::string& text) {
    said += text;
    note(text);
  });
  std::optional<runtime::Machine> machine;
  if (options.machine) machine = runtime::read_machine(*options.machine);
  workload = workload.with(recipe_for(machine, asked));
  const runtime::Recipe& recipe = workload.recipe;
  if (options.html) require_own({"--html", *options.html}, Content::page, options.force);
  runtime::RankDevice rank_device = runtime::planned_rank_device(recipe.device.kind);
  const int per_node = ranks_on_a_node(options, ranks, machine, rank_device);
  const runtime::Capacity capacity = runtime::capacity_of(recipe.memory, per_node, rank_device);
  if (per_node < ranks)
    for (int rank = 0; rank < ranks; ++rank) workload.nodes.push_back(rank / per_node);
  workload.resolved.tensor_shards = runtime::shards_to_take(recipe, runtime::resumed_shards(recipe));
  const PlanSetup setup{workload, ranks, capacity, machine, per_node};
  std::optional<MaxBatch> largest;
  if (options.max_batch) largest = find_max_batch(setup);
  const std::int64_t size = largest ? largest->largest.size() : resolve_batch(workload, ranks, rank_device.device);
  workload = workload.with(runtime::with_micro_batch(recipe, size));
  if (options.rank && *options.rank >= ranks)
    fail(Exit::usage, "--rank {} is not one of {}: give 0 to {}{}", *options.rank, counted(ranks, "rank"), ranks - 1,
         options.ranks ? "" : fmt::format(" (did you mean --ranks {}?)", *options.rank));
  std::vector<PlannedStage> pipeline;
  if (recipe.parallel.stages > 1) pipeline = plan_pipeline(setup);
  const runtime::Job alone = pipeline.empty() ? runtime::make_job(workload, ranks, capacity) : runtime::Job{};
  const std::size_t shown = pipeline.empty() ? 0 : stage_of(pipeline, options.rank);
  const runtime::Job& job = pipeline.empty() ? alone : pipeline[shown].job;
  const auto fits_stage = [&](const PlannedStage& stage) { return runtime::fits(stage.job.plan, capacity); };
  const bool fits = pipeline.empty() ? runtime::fits(job.plan, capacity) : std::ranges::all_of(pipeline, fits_stage);
  const auto nearest = fits ? std::vector<runtime::Suggestion>{} : runtime::nearest_that_fit(job, capacity);
  const runtime::Job& slowest = pipeline.empty() || !machine ? job : pipeline[slowest_of(pipeline, options.rank)].job;
  std::optional<Prediction> prediction;
  if (machine)
    prediction = predict(options.recipe, options.sets, *machine, slowest, capacity, per_node, simulated(pipeline));
  std::vector<ZeroStage> stages;
  if (options.stages || options.html) stages = plan_stages(setup);
  if (options.stages) add_group_stages(stages, setup);
  std::vector<PlannedSetting> settings;
  if (options.table) settings = plan_settings({job, ranks, capacity, machine, per_node});
  print_table(job, setup, options);
  if (!pipeline.empty()) fmt::print("\n{}\n", pipeline_text(setup, pipeline));
  print_epoch(job, std::move(data));
  if (largest) fmt::print("\n{}", max_batch_text(*largest));
  if (options.verbose) print_task_counts(job.plan);
  if (options.stages) print_stages(stages);
  if (options.table) fmt::print("\n{}", settings_text(settings));
  print_notes(loaded.notes);
  print_notes(job.notes);
  const std::vector<std::string> missing = missing_inputs(recipe);
  // Without the data, it is not known whether the run takes documents, or which classes it has.
  if (!largest && missing.empty() && !recipe.data.train.empty())
    if (const std::string why = runtime::refused_by_checkpoint(job); !why.empty()) note("train refuses this: " + why);
  for (const std::string& text : missing)
    if (said.find(text) == said.npos) note(text + "; only train needs it, not plan");
  for (const auto& drive : recipe.memory.nvme)
    if (std::error_code error; !std::filesystem::is_directory(drive, error))
      note(fmt::format("memory.nvme: there is no folder {}; only train needs it, not plan", drive.string()));
  if (prediction) print_prediction(*prediction);
  if (options.json) {
    runtime::ReportFile file(*options.json, "--json");
    const TaskCounts counts = count_tasks(job.plan);
    JsonObject json;
    json.add("fits", fits)
        .add("ranks", ranks)
        .add("ranks_per_node", per_node)
        .add("mesh", JsonText{runtime::mesh_json(job.plan.mesh())})
        .add("parameters", job.model->parameters())
        .add("micro_batch_size", job.recipe.training.micro_batch_size)
        .add("memory", JsonText{runtime::memory_json(job.plan.memory, nullptr)})
        .add("memory_rank", rank_shown(job, options.rank))
        .add("capacity_bytes",
             JsonObject().add("device", capacity[runtime::Tier::device]).add("host", capacity[runtime::Tier::host]))
        .add("comm_bytes", JsonText{runtime::comm_json(job.plan.comm_bytes)})
        .add("io_bytes", JsonText{runtime::io_json(job.plan.io_bytes)})
        .add("order", runtime::order_name(job.plan))
        .add("tile_bytes", job.plan.tile_bytes)
        .add("tasks", std::accumulate(counts.begin(), counts.end(), std::size_t{0}))
        .add("nearest", nearest_json(nearest));
    if (prediction) json.add_all(prediction_json(*prediction, slowest.plan));
    std::vector<PlannedStage> one = pipeline.empty() ? plan_pipeline(setup) : std::vector<PlannedStage>{};
    if (prediction && !one.empty()) one[0].step_ms = prediction->forecast.step_ms;
    json.add("stages", pipeline_json(pipeline.empty() ? one : pipeline));
    if (!pipeline.empty()) json.add("split", JsonArray().add_all(split_of(job)));
    if (options.stages) json.add("zero_stages", stages_json(stages));
    if (options.table) json.add("table", settings_json(settings));
    if (largest) json.add("max_batch", JsonText{max_batch_json(*largest)});
    file.write(json.text() + "\n");
    file.close();
  }
  if (options.html) write_page(options, job, stages, setup);
  if (options.trace) {
    runtime::ReportFile file(*options.trace, "--trace");
    file.write(pipeline.empty() ? step_trace(job, prediction) : pipeline_trace(pipeline));
    file.close();
  }
  if (fits) return static_cast<int>(Exit::done);
  // The stage with the largest peak on the device or, if that one fits, the first stage that does not.
  const runtime::Job& refused =
      runtime::fits(job.plan, capacity) ? std::ranges::find_if_not(pipeline, fits_stage)->job : job;
  print_failure(runtime::refusal(refused, capacity, nearest), Exit::does_not_fit);
  return static_cast<int>(Exit::does_not_fit);
}

}  // namespace strata::launcher

#include "launcher/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/error.h"
#include "runtime/job/requirements.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {
namespace {

using runtime::Bound;
using runtime::Tier;

constexpr double kWorthIt = 1.03;
// Planning and simulating this many tasks takes about a second.
constexpr std::size_t kMaxTasksOfGains = std::size_t{1} << 15;

struct Setting {
  runtime::Changes changes;
  bool same_numbers = true;
  bool nearer = false;  // moves state nearer to the device
};

std::string schedule_name(runtime::Recipe recipe, runtime::Schedule schedule) {
  recipe.parallel.schedule = schedule;
  std::string text = runtime::find_key("parallel.schedule")->text(recipe);
  std::erase(text, '"');
  return text;
}

// Adds the setting that turns the job's pipeline into another one, if the model and the step allow it. A step keeps its
// micro-batches: fewer data ranks take more of them each.
void add_pipeline(const runtime::Job& job, const runtime::Recipe::Parallel& then, std::vector<Setting>& out) {
  const runtime::Recipe& r = job.recipe;
  const runtime::Recipe::Parallel& now = r.parallel;
  if (job.ranks % then.replica() != 0) return;
  if (then.stages * then.chunks > static_cast<std::int64_t>(job.model->units.size())) return;
  const auto micro_batches = static_cast<std::int64_t>(job.plan.micro_batches());
  const std::int64_t data = job.ranks / then.replica(), steps = micro_batches / data;
  if (micro_batches % data != 0 || !runtime::takes_micro_batches(then, steps)) return;
  runtime::Changes changes;
  if (then.stages != now.stages) changes.emplace_back("parallel.stages", fmt::to_string(then.stages));
  if (then.schedule != now.schedule) changes.emplace_back("parallel.schedule", schedule_name(r, then.schedule));
  if (then.chunks != now.chunks) changes.emplace_back("parallel.chunks", fmt::to_string(then.chunks));
  // A list has the blocks of each piece.
  const bool same_pieces = then.stages == now.stages && then.chunks == now.chunks;
  if (!now.split.empty() && !same_pieces) changes.emplace_back("parallel.split", "auto");
  if (then.stages > 1 && r.memory.order == runtime::AccumulationOrder::vertical)
    changes.emplace_back("memory.order", "horizontal");
  if (steps != job.plan.accumulation && !r.training.global_batch_size)
    changes.emplace_back("training.gradient_accumulation_steps", fmt::to_string(steps));
  out.push_back({std::move(changes), !job.plan.fast});
}

void add_pipelines(const runtime::Job& job, std::vector<Setting>& out) {
  using runtime::Schedule;
  const runtime::Recipe::Parallel& now = job.recipe.parallel;
  const auto add = [&](int stages, Schedule schedule, std::int64_t chunks) {
    runtime::Recipe::Parallel then = now;
    then.stages = stages;
    then.schedule = schedule;
    then.chunks = chunks;
    add_pipeline(job, then, out);
  };
  constexpr Schedule kPlain = Schedule::one_forward_one_backward, kAllForward = Schedule::all_forward_all_backward;
  add(2 * now.stages, now.schedule, now.chunks);
  if (now.stages == 1) return;
  if (now.stages == 2) add(1, kPlain, 1);
  if (now.stages > 2 && now.stages % 2 == 0) add(now.stages / 2, now.schedule, now.chunks);
  if (now.schedule != kPlain) add(now.stages, kPlain, 1);
  if (now.schedule != kAllForward) add(now.stages, kAllForward, 1);
  add(now.stages, Schedule::interleaved, now.chunks + 1);
  if (now.chunks > 2) add(now.stages, Schedule::interleaved, now.chunks - 1);
}

// Adds the settings that shard state over all data ranks, instead of a group of them: each kind of state, and all.
void add_wider_groups(const runtime::Recipe::Zero& zero, std::vector<Setting>& out) {
  runtime::Changes all;
  const auto look = [&](const char* key, std::int64_t group, int stage) {
    if (zero.stage >= stage && group != runtime::kAllRanks) all.emplace_back(key, "all");
  };
  look("zero.optimizer_group", zero.optimizer_group, 1);
  look("zero.gradients_group", zero.gradients_group, 2);
  look("zero.parameters_group", zero.parameters_group, 3);
  if (all.size() > 1)
    for (const auto& change : all) out.push_back({{change}});
  if (!all.empty()) out.push_back({all});
}

std::vector<Setting> settings_to_try(const runtime::Job& job) {
  const runtime::Recipe& r = job.recipe;
  std::vector<Setting> out;
  const auto add = [&](std::string key, std::string value, bool same_numbers = true) {
    out.push_back({{{std::move(key), std::move(value)}}, same_numbers});
  };
  add_pipelines(job, out);
  add_wider_groups(r.zero, out);
  const bool moves = job.plan.sharded_parameters() || r.zero.parameters != Tier::device;
  const runtime::Mesh& mesh = job.plan.mesh();
  if (job.plan.accumulation > 1 && mesh.stages == 1) add("memory.order", job.plan.vertical ? "horizontal" : "vertical");
  if (moves) add("memory.prefetch", fmt::to_string(r.memory.prefetch + 1));
  for (int stage = 0; stage <= 3 && job.ranks > 1; ++stage)
    if (stage != r.zero.stage) add("zero.stage", fmt::to_string(stage));
  if (mesh.node > 1 && mesh.node < mesh.world) {
    if (r.zero.stage == 3 && r.zero.parameters_group == runtime::kAllRanks) add("zero.parameters_group", "node");
    if (r.zero.stage > 0 && r.zero.optimizer_group == runtime::kAllRanks) add("zero.optimizer_group", "node");
  }
  if (mesh.tensor > 1) add("parallel.sequence", r.parallel.sequence ? "false" : "true");
  if (mesh.data_per_node() > 1 && mesh.data_per_node() < mesh.data() && r.training.reduce_group == 1 && !job.plan.fast)
    add("training.reduce_group", fmt::to_string(mesh.data_per_node()), false);
  if (r.training.recompute.kind != runtime::Recompute::Kind::none) add("training.recompute", "none");
  const auto nearer = [&](const char* key, Tier tier) {
    if (tier == Tier::nvme) out.push_back({{{key, "host"}}, true, true});
    if (tier != Tier::device) out.push_back({{{key, "device"}}, true, true});
  };
  nearer("zero.parameters", r.zero.parameters);
  nearer("zero.gradients", r.zero.gradients);
  nearer("zero.optimizer", r.zero.optimizer);
  nearer("zero.activations", r.zero.activations);
  if (r.optimizer.moment_format() != device::StorageFormat::block8) add("optimizer.moments", "8bit", false);
  if (r.training.precision != device::DType::bf16) add("training.precision", "bf16", false);
  if (job.plan.accumulation > 1 && job.ranks > 1 && !job.plan.fast) add("training.reduce", "fast", false);
  if (!r.training.global_batch_size)
    add("training.gradient_accumulation_steps", fmt::to_string(2 * job.plan.accumulation), false);
  return out;
}

double rate_of_step(const runtime::StepPlan& plan, double step_ms) {
  return static_cast<double>(plan.tokens) * plan.accumulation * plan.mesh().data() / step_ms * 1e3;
}

// A job's speed, from a simulation of all its pipeline stages, and the most memory that a stage needs in each tier.
struct StepSpeed {
  double tokens_per_s;
  runtime::Memory memory;
};
// nullopt if a stage does not fit.
std::optional<StepSpeed> simulated_speed(const runtime::Job& first, const runtime::Capacity& capacity,
                                         const runtime::Machine& machine, int ranks_per_node) {
  if (!fits(first.plan, capacity)) return std::nullopt;
  const std::vector<runtime::Job> later = runtime::jobs_of_later_stages(first, capacity);
  StepSpeed speed{0, first.plan.memory};
  std::vector<const runtime::StepPlan*> plans = {&first.plan};
  for (const runtime::Job& job : later) {
    if (!fits(job.plan, capacity)) return std::nullopt;
    plans.push_back(&job.plan);
    for (std::size_t tier = 0; tier < runtime::kTiers; ++tier)
      if (job.plan.memory[tier].peak > speed.memory[tier].peak) speed.memory[tier] = job.plan.memory[tier];
  }
  const runtime::MachineProfile profile = profile_of(machine, first, ranks_per_node);
  double step_s = 0;
  if (later.empty()) {
    step_s = makespan_s(first.plan, simulate(first.plan, profile));
  } else {
    const std::vector<std::vector<runtime::Span>> spans = runtime::simulate(plans, profile);
    std::vector<runtime::SimulatedStage> stages;
    for (std::size_t s = 0; s < plans.size(); ++s) stages.push_back({plans[s], spans[s]});
    step_s = runtime::makespan_s(stages);
  }
  speed.tokens_per_s = rate_of_step(first.plan, 1e3 * step_s);
  return speed;
}

// The capacity of ranks with as much memory as a plan could need.
runtime::Capacity without_limits(runtime::Capacity capacity) {
  capacity.tier.fill(std::numeric_limits<std::size_t>::max());
  capacity.together = std::numeric_limits<std::size_t>::max();
  return capacity;
}

}  // namespace

runtime::MachineProfile profile_for(const std::optional<runtime::Machine>& machine, const runtime::Job& job,
                                    int ranks_per_node) {
  return machine ? runtime::profile_of(*machine, job, ranks_per_node) : runtime::nominal_profile(job.plan);
}

Bound Forecast::bound() const {
  return static_cast<Bound>(std::max_element(path.begin(), path.end()) - path.begin());
}

Forecast forecast(const runtime::Job& job, const runtime::Machine& machine, int ranks_per_node,
                  std::span<const runtime::SimulatedStage> stages) {
  const runtime::MachineProfile profile = profile_of(machine, job, ranks_per_node);
  Forecast f;
  std::vector<std::int64_t> send_times;
  if (stages.size() > 1) {
    f.step_ms = 1e3 * runtime::makespan_s(stages);
    const std::span<const runtime::Span> own = stages[static_cast<std::size_t>(job.plan.stage)].spans;
    f.spans.assign(own.begin(), own.end());
    send_times = runtime::send_times(stages, job.plan.stage);
  } else {
    f.spans = simulate(job.plan, profile);
    f.step_ms = 1e3 * makespan_s(job.plan, f.spans);
  }
  f.tokens_per_s = rate_of_step(job.plan, f.step_ms);
  f.path = critical_path(job.plan, profile, f.spans, -1, send_times);
  return f;
}

Speedups find_speedups(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                       const runtime::Job& job, double now, const runtime::Capacity& capacity,
                       const runtime::Machine& machine, int ranks_per_node) {
  Speedups out;
  const std::size_t tasks = job.plan.tasks.size() * static_cast<std::size_t>(job.plan.mesh().stages);
  std::size_t planned = 0;
  // False if the setting does not fit.
  const auto look = [&](const Setting& s, const runtime::Recipe& one, const runtime::Capacity& limit, bool more) {
    runtime::Layout layout = job.plan.layout;
    layout.mesh.stages = one.parallel.stages;
    if (!runtime::is_worth_planning(one, layout, limit)) return false;
    planned += tasks;
    const auto then = simulated_speed(make_job(job.with(one), job.ranks, limit), limit, machine, ranks_per_node);
    if (!then) return false;
    if (then->tokens_per_s >= kWorthIt * now)
      out.faster.push_back({s.changes, then->tokens_per_s, s.same_numbers, more, then->memory});
    return true;
  };
  for (const Setting& s : settings_to_try(job)) {
    if (planned + tasks > kMaxTasksOfGains) {
      const std::string& key = s.changes[0].first;
      if (out.untried.empty() || out.untried.back() != key) out.untried.push_back(key);
      continue;
    }
    std::vector<std::string> changed = sets;
    changed.push_back(fmt::format("training.micro_batch_size={}", job.recipe.training.micro_batch_size));
    for (const auto& [key, value] : s.changes) changed.push_back(fmt::format("{}={}", key, value));
    try {
      const runtime::Recipe one = runtime::load_recipe(recipe, changed);
      if (!look(s, one, capacity, false) && s.nearer) (void)look(s, one, without_limits(capacity), true);
    } catch (const Error&) {
      // This setting contradicts other keys of the recipe.
    }
  }
  std::stable_sort(out.faster.begin(), out.faster.end(),
                   [](const Speedup& a, const Speedup& b) { return a.tokens_per_s > b.tokens_per_s; });
  return out;
}

std::string advice(Bound bound, const runtime::StepPlan& plan, bool on_gpu) {
  const runtime::Mesh& mesh = plan.mesh();
  switch (bound) {
    case Bound::products:
    case Bound::attention:
      return on_gpu ? "more ranks, or faster GPUs" : "more ranks or cores";
    case Bound::memory:
      return on_gpu ? "more ranks, or GPUs with faster memory"
                    : "more ranks on other machines, because the speed of memory is the limit";
    case Bound::optimizer:
      return mesh.data() > 1 && plan.placement.optimizer.pieces(mesh) == mesh.data()
                 ? "more ranks on other machines, which share the update, or a larger batch per step"
                 : "a larger batch per step, so that each update is for more tokens";
    case Bound::communication:
      if (mesh.tensor > 1) return on_gpu ? "a faster connection between GPUs" : "fewer ranks with more cores each";
      return on_gpu ? "larger micro-batches, or a faster connection between GPUs"
                    : "larger micro-batches, or fewer ranks with more cores each";
    case Bound::host_link:
      return on_gpu ? "a faster connection between host and device" : "more ranks on other machines, or faster memory";
    case Bound::disk:
      return "another drive in memory.nvme";
    case Bound::stages:
      return "more micro-batches per step";
    case Bound::waking:
      break;
  }
  return "larger micro-batches: tasks are short compared with the time to start them";
}

}  // namespace strata::launcher

#include "launcher/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "runtime/job/search/candidate.h"
#include "runtime/recipe/load_recipe.h"

namespace strata::launcher {
namespace {

using runtime::Bound;
using runtime::Tier;

constexpr double kWorthIt = 1.03;

struct Setting {
  std::string key, value;
  bool same_numbers;
};

std::vector<Setting> settings_to_try(const runtime::Job& job) {
  const runtime::Recipe& r = job.recipe;
  std::vector<Setting> out;
  const auto add = [&](std::string key, std::string value, bool same_numbers = true) {
    out.push_back({std::move(key), std::move(value), same_numbers});
  };
  const bool moves = job.plan.sharded_parameters() || r.zero.parameters != Tier::device;
  if (job.plan.accumulation > 1) add("memory.order", job.plan.vertical ? "horizontal" : "vertical");
  if (moves) add("memory.prefetch", fmt::to_string(r.memory.prefetch + 1));
  for (int stage = 0; stage < r.zero.stage && job.ranks > 1; ++stage) add("zero.stage", fmt::to_string(stage));
  const runtime::Mesh& mesh = job.plan.mesh();
  if (mesh.node > 1 && mesh.node < mesh.world) {
    if (r.zero.stage == 3 && r.zero.parameters_group == runtime::kAllRanks) add("zero.parameters_group", "node");
    if (r.zero.stage > 0 && r.zero.optimizer_group == runtime::kAllRanks) add("zero.optimizer_group", "node");
  }
  if (mesh.data_per_node() > 1 && mesh.data_per_node() < mesh.data() && r.training.reduce_group == 1 && !job.plan.fast)
    add("training.reduce_group", fmt::to_string(mesh.data_per_node()), false);
  if (r.training.recompute.kind != runtime::Recompute::Kind::none) add("training.recompute", "none");
  const auto nearer = [&](const char* key, Tier tier) {
    if (tier == Tier::nvme) add(key, "host");
    if (tier != Tier::device) add(key, "device");
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
  f.tokens_per_s =
      static_cast<double>(job.plan.tokens) * job.plan.accumulation * job.plan.mesh().data() / f.step_ms * 1e3;
  f.path = critical_path(job.plan, profile, f.spans, -1, send_times);
  return f;
}

std::vector<Gain> gains(const std::optional<std::filesystem::path>& recipe, const std::vector<std::string>& sets,
                        const runtime::Job& job, const runtime::Capacity& capacity, const runtime::Machine& machine,
                        int ranks_per_node) {
  const double now = forecast(job, machine, ranks_per_node).tokens_per_s;
  std::vector<Gain> out;
  if (job.plan.mesh().stages > 1) return out;
  for (const Setting& s : settings_to_try(job)) {
    std::vector<std::string> changed = sets;
    changed.push_back(fmt::format("training.micro_batch_size={}", job.recipe.training.micro_batch_size));
    changed.push_back(fmt::format("{}={}", s.key, s.value));
    try {
      runtime::Recipe one = runtime::load_recipe(recipe, changed);
      if (!runtime::is_worth_planning(one, job.plan.layout, capacity)) continue;
      const runtime::Job other = make_job(job.with(std::move(one)), job.ranks, capacity);
      if (!fits(other.plan, capacity)) continue;
      const double then = forecast(other, machine, ranks_per_node).tokens_per_s;
      if (then >= kWorthIt * now) out.push_back({s.key, s.value, then, s.same_numbers});
    } catch (const Error&) {
      // This setting contradicts other keys of the recipe.
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Gain& a, const Gain& b) { return a.tokens_per_s > b.tokens_per_s; });
  return out;
}

std::string pieces_to_try(const runtime::Job& job) {
  const runtime::Recipe::Parallel& parallel = job.recipe.parallel;
  const auto units = static_cast<std::int64_t>(job.model->units.size());
  // parallel.split lists the blocks of each piece, so the number of pieces is fixed.
  if (parallel.stages == 1 || !parallel.split.empty() || job.plan.accumulation % parallel.stages != 0) return {};
  if ((parallel.chunks + 1) * parallel.stages > units) return {};
  return parallel.schedule == runtime::Schedule::interleaved
             ? fmt::format("parallel.chunks = {}", parallel.chunks + 1)
             : "parallel.schedule = \"interleaved\" with parallel.chunks = 2";
}

std::string advice(Bound bound, bool on_gpu, std::string_view pieces) {
  switch (bound) {
    case Bound::products:
    case Bound::attention:
      return on_gpu ? "more ranks, or faster GPUs" : "more ranks or cores";
    case Bound::memory:
    case Bound::optimizer:
      return "more ranks on other machines, because memory is the limit";
    case Bound::communication:
      return on_gpu ? "larger micro-batches, or a faster connection between GPUs"
                    : "larger micro-batches, or fewer ranks with more cores each";
    case Bound::host_link:
      return "more device memory (memory.device), so that less is moved";
    case Bound::disk:
      return "another drive in memory.nvme";
    case Bound::stages:
      return fmt::format("more micro-batches per step{}{}", pieces.empty() ? "" : ", or ", pieces);
    case Bound::waking:
      break;
  }
  return "larger micro-batches: tasks are short compared with the time to start them";
}

}  // namespace strata::launcher

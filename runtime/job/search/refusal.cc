#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/quantity.h"
#include "runtime/job/requirements.h"
#include "runtime/job/search/candidate.h"
#include "runtime/job/search/meshes.h"
#include "runtime/job/search/suggestion.h"

namespace strata::runtime {
namespace {

// The job's workload on more ranks, with the same number on each node.
Workload on_more_nodes(const Job& job, Recipe recipe, int ranks) {
  Workload more = job.with(std::move(recipe));
  if (job.nodes.empty()) return more;
  const auto per_node = static_cast<int>(std::ranges::count(job.nodes, job.nodes[0]));
  more.nodes.clear();
  for (int rank = 0; rank < ranks; ++rank) more.nodes.push_back(rank / per_node);
  return more;
}

// The changes that save memory in the same tiers and keep the bits, as few as the workload's step needs to fit on this
// many ranks. nullopt if all of them do not suffice. A plan on many ranks takes a second, and on most numbers of ranks
// the state alone is too large.
std::optional<std::vector<Step>> steps_that_fit(const Workload& workload, int ranks, const Capacity& capacity,
                                                std::size_t width) {
  const Recipe& recipe = workload.recipe;
  std::optional<Layout> layout;
  const auto fits_with = [&](const std::vector<Step>& steps) {
    const Recipe changed = candidate_of(recipe, steps).recipe;
    try {
      if (!layout) layout = layout_of(workload, ranks);
      if (!state_may_fit(changed, *layout, capacity)) return false;
      const Job job = draft_job(workload.with(changed), ranks, capacity);
      return memory_of_stages(job, capacity).has_value();
    } catch (const Error&) {
      return false;  // another key does not allow this many
    }
  };
  if (fits_with({})) return std::vector<Step>{};
  const Recipe::Zero& zero = recipe.zero;
  const Tiers tiers = {zero.parameters, zero.gradients, zero.optimizer, zero.activations};
  std::vector<Step> steps = all_steps(recipe, {ranks, Purpose::train, false, width}, tiers, false);
  if (steps.empty() || !fits_with(steps)) return std::nullopt;
  for (std::size_t i = steps.size(); i-- > 0;) {
    std::vector<Step> fewer = steps;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (fits_with(fewer)) steps = std::move(fewer);
  }
  return steps;
}

// "zero.stage = 3, training.recompute = "block" and memory.prefetch = 0".
std::string text_of_steps(const std::vector<Step>& steps) {
  std::string text = "zero.stage = 3";
  for (const Step& step : steps) {
    const auto& [key, value] = step.changes[0];
    text += &step == &steps.back() ? " and " : ", ";
    text += value.empty() ? fmt::format("no {}", key) : fmt::format("{} = {}", key, value);
  }
  return text;
}

// Returns the fewest ranks, of 2, 4, ... 64 times the job's, on which a step fits at ZeRO-3 with this capacity each,
// found by planning, and the other changes that it needs. The batch stays the same if it divides over that many ranks.
// Empty if none fits.
std::string ranks_that_fit(const Job& job, const Capacity& capacity) {
  const Recipe::Training& training = job.recipe.training;
  const std::int64_t batch =
      training.micro_batch_size * job.recipe.accumulation_steps(job.ranks) * job.recipe.data_ranks(job.ranks);
  for (int ranks = 2 * job.ranks; ranks <= 64 * job.ranks; ranks *= 2) {
    const int fewest = multiple_of_micro_batches(job.recipe, ranks);
    const std::int64_t at_once = training.micro_batch_size * job.recipe.data_ranks(ranks);
    const bool same = batch % (at_once * fewest) == 0;
    Recipe recipe = job.recipe;
    recipe.zero.stage = 3;
    recipe.training.global_batch_size.reset();
    const std::int64_t steps = same ? batch / at_once : fewest;
    recipe.training.gradient_accumulation_steps = steps;
    const Workload more = on_more_nodes(job, std::move(recipe), ranks);
    const auto changes = steps_that_fit(more, ranks, capacity, job.model->hidden);
    if (!changes) continue;
    const auto& global = training.global_batch_size;
    const bool as_asked = global ? same : steps == training.gradient_accumulation_steps.value_or(1);
    return fmt::format("{} ranks, each with as much memory, and set {}{}{}", ranks, text_of_steps(*changes),
                       as_asked ? ""
                                : fmt::format(", with training.gradient_accumulation_steps = {}{}", steps,
                                              global ? " instead of training.global_batch_size" : ""),
                       !same                             ? " (losses change, because the batch grows)"
                       : training.reduce == Reduce::fast ? " (same batch, rounded differently)"
                                                         : "");
  }
  return "";
}

// "ZeRO stage, groups, tiers, recomputation, micro-batch, prefetch or parallel.stages": what nearest_that_fit()
// changes.
std::string text_of_tried(const Job& job) {
  const bool trains = !job.plan.forward_only;
  std::vector<const char*> tried;
  if (job.ranks > 1) tried.push_back("ZeRO stage");
  if (job.ranks > 1 && trains) tried.push_back("groups");
  tried.push_back("tiers");
  if (trains) tried.push_back("recomputation");
  tried.insert(tried.end(), {"micro-batch", "prefetch"});
  const Recipe::Parallel& now = job.recipe.parallel;
  bool stages = false, tensor = false;
  if (trains)
    for (const Degrees d : degrees_to_try(now, job.ranks, job.model->units.size())) {
      const bool is_new = (d.stages != now.stages && !stages) || (d.tensor != now.tensor && !tensor);
      if (!is_new || !(mesh_with(job, d, StepBatch::same) || mesh_with(job, d, StepBatch::smaller))) continue;
      stages |= d.stages != now.stages;
      tensor |= d.tensor != now.tensor;
    }
  if (stages) tried.push_back("parallel.stages");
  if (tensor) tried.push_back("parallel.tensor");
  if (job.recipe.training.precision == device::DType::fp32) tried.push_back("precision");
  const char* last = tried.back();
  tried.pop_back();
  return fmt::format("{} or {}", fmt::join(tried, ", "), last);
}

}  // namespace

std::string refusal(const Job& job, const Capacity& capacity, const std::vector<Suggestion>& nearest) {
  const auto memory_of = [&](std::size_t tier) {
    const bool on_cpu = job.plan.device.kind == device::Kind::cpu;
    return tier == 0 && on_cpu ? std::string(tier_title(tier, on_cpu)) : fmt::format("{} memory", kTierNames[tier]);
  };
  std::string text;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    const std::size_t needed = job.plan.memory[tier].peak;
    if (needed <= capacity.tier[tier]) continue;
    text = fmt::format("it does not fit: each rank needs {} ({} bytes) of {}, but memory.{} is {} ({})",
                       bytes_text(needed), needed, memory_of(tier), kTierNames[tier], bytes_text(capacity.tier[tier]),
                       counted(capacity.tier[tier], "byte"));
    break;
  }
  if (text.empty()) {
    const std::size_t device = job.plan.memory[0].peak, host = job.plan.memory[1].peak;
    text = fmt::format(
        "it does not fit: each rank needs {} of {} and {} of {}, {} bytes together, but only {} ({} bytes) are "
        "available for both",
        bytes_text(device), memory_of(0), bytes_text(host), memory_of(1), device + host, bytes_text(capacity.together),
        capacity.together);
  }
  if (nearest.empty()) {
    text += fmt::format("; no change of {} was found that makes it fit", text_of_tried(job));
    if (job.plan.forward_only) return text + ": use more ranks or a smaller model";
    const std::string ranks = ranks_that_fit(job, capacity);
    if (!ranks.empty()) return text + ": use " + ranks;
    return text + ", on these ranks or more: use a smaller model, shorter sequences, or more memory for each rank";
  }
  text += nearest.size() == 1 ? "; it fits with" : "; it fits with any of";
  for (const Suggestion& s : nearest) {
    text += "\n ";
    for (const auto& [key, value] : s.changes) {
      std::string plain = value;  // without quotes, for a shell
      std::erase(plain, '"');
      text += fmt::format(" --set {}={}", key, plain);
    }
    constexpr const char* kNumbers[] = {
        "", "; same batch, rounded differently",
        "; same batch, rounded differently, with different dropout masks if there are any", "; losses change",
        "; losses change, because the batch shrinks"};
    text += fmt::format("  ({}{})", memory_text(s.memory),
                        kNumbers[static_cast<std::size_t>(numbers_with(job.complete_recipe(), s.changes))]);
  }
  return text;
}

}  // namespace strata::runtime

#include "runtime/job/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

namespace strata::runtime {
namespace {

// A recipe with some changes to its keys, for the search of what would fit.
struct Candidate {
  Recipe recipe;
  std::vector<std::pair<std::string, std::string>> changes;
};

void add_changes(const Candidate& from, int ranks, Purpose purpose, std::vector<Candidate>& out) {
  const auto changed = [&](const char* key) {
    return std::any_of(from.changes.begin(), from.changes.end(), [&](const auto& c) { return c.first == key; });
  };
  const auto add = [&](const char* key, std::string value, auto&& change) {
    if (changed(key)) return;
    Candidate& c = out.emplace_back(from);
    c.changes.emplace_back(key, std::move(value));
    change(c.recipe);
  };
  const Recipe& r = from.recipe;
  if (ranks > 1)
    for (int stage = r.zero.stage + 1; stage <= 3; ++stage)
      add("zero.stage", std::to_string(stage), [&](Recipe& c) { c.zero.stage = stage; });
  if (purpose == Purpose::train && r.training.recompute.kind != Recompute::Kind::block) {
    if (r.training.recompute.kind != Recompute::Kind::sqrt)
      add("training.recompute", "\"sqrt\"", [](Recipe& c) { c.training.recompute = {Recompute::Kind::sqrt, {}}; });
    add("training.recompute", "\"block\"", [](Recipe& c) { c.training.recompute = {Recompute::Kind::block, {}}; });
  }
  // Half, a quarter, ... of the micro-batch, with as many more of them: the same global batch.
  for (std::int64_t divide = 2; divide <= r.training.micro_batch_size; divide *= 2) {
    if (r.training.micro_batch_size % divide != 0 || changed("training.gradient_accumulation_steps")) break;
    const std::int64_t size = r.training.micro_batch_size / divide;
    if (purpose != Purpose::train) {
      add("training.micro_batch_size", std::to_string(size), [&](Recipe& c) { c.training.micro_batch_size = size; });
      continue;
    }
    const std::int64_t steps = r.accumulation_steps(ranks) * divide;
    if (steps > kMostCalls) break;
    add("training.micro_batch_size", std::to_string(size), [&](Recipe& c) {
      c.training.micro_batch_size = size;
      if (!c.training.global_batch_size) c.training.gradient_accumulation_steps = steps;
    });
    if (!r.training.global_batch_size && !out.empty() && out.back().changes.back().first == "training.micro_batch_size")
      out.back().changes.emplace_back("training.gradient_accumulation_steps", std::to_string(steps));
  }
  // State to another tier, the largest first; to NVMe where the recipe names drives.
  const auto offload = [&](const char* key, Tier tier, Tier Recipe::Zero::*at) {
    if (tier < Tier::host) add(key, "\"host\"", [&](Recipe& c) { c.zero.*at = Tier::host; });
    if (tier < Tier::nvme && !r.memory.nvme.empty()) add(key, "\"nvme\"", [&](Recipe& c) { c.zero.*at = Tier::nvme; });
  };
  offload("zero.optimizer", r.zero.optimizer, &Recipe::Zero::optimizer);
  if (r.zero.optimizer != Tier::device) {
    offload("zero.gradients", r.zero.gradients, &Recipe::Zero::gradients);
    offload("zero.parameters", r.zero.parameters, &Recipe::Zero::parameters);
  }
  if (r.training.recompute.kind != Recompute::Kind::none)
    offload("zero.activations", r.zero.activations, &Recipe::Zero::activations);
  // Or back, where it is the host that is too small.
  const auto bring_back = [&](const char* key, Tier tier, Tier Recipe::Zero::*at) {
    if (tier != Tier::device) add(key, "\"device\"", [&](Recipe& c) { c.zero.*at = Tier::device; });
  };
  bring_back("zero.activations", r.zero.activations, &Recipe::Zero::activations);
  bring_back("zero.parameters", r.zero.parameters, &Recipe::Zero::parameters);
  bring_back("zero.gradients", r.zero.gradients, &Recipe::Zero::gradients);
  bring_back("zero.optimizer", r.zero.optimizer, &Recipe::Zero::optimizer);
  if ((r.zero.stage == 3 && ranks > 1) || r.zero.parameters != Tier::device)
    for (const std::int64_t prefetch : {1, 0})
      if (prefetch < r.memory.prefetch)
        add("memory.prefetch", std::to_string(prefetch), [&](Recipe& c) { c.memory.prefetch = prefetch; });
  if (r.memory.order == AccumulationOrder::vertical)
    add("memory.order", "\"horizontal\"", [](Recipe& c) { c.memory.order = AccumulationOrder::horizontal; });
  if (r.training.precision == device::DType::fp32)
    add("training.precision", "\"bf16\"", [](Recipe& c) { c.training.precision = device::DType::bf16; });
}

// Sharded, recomputed, and with all state on NVMe; one_by_one: and sequence by sequence, nothing prefetched, the global
// batch kept.
Candidate with_least_memory(const Recipe& recipe, int ranks, bool one_by_one) {
  Candidate c{recipe, {}};
  if (ranks > 1 && recipe.zero.stage < 3) {
    c.recipe.zero.stage = 3;
    c.changes.emplace_back("zero.stage", "3");
  }
  if (recipe.training.recompute.kind != Recompute::Kind::block) {
    c.recipe.training.recompute = {Recompute::Kind::block, {}};
    c.changes.emplace_back("training.recompute", "\"block\"");
  }
  for (const auto& [key, tier] :
       {std::pair("zero.parameters", &Recipe::Zero::parameters), std::pair("zero.gradients", &Recipe::Zero::gradients),
        std::pair("zero.optimizer", &Recipe::Zero::optimizer)})
    if (recipe.zero.*tier != Tier::nvme) {
      c.recipe.zero.*tier = Tier::nvme;
      c.changes.emplace_back(key, "\"nvme\"");
    }
  if (!one_by_one) return c;
  if (const std::int64_t size = recipe.training.micro_batch_size; size > 1) {
    c.recipe.training.micro_batch_size = 1;
    c.changes.emplace_back("training.micro_batch_size", "1");
    if (!recipe.training.global_batch_size) {
      c.recipe.training.gradient_accumulation_steps = recipe.accumulation_steps(ranks) * size;
      c.changes.emplace_back("training.gradient_accumulation_steps",
                             std::to_string(*c.recipe.training.gradient_accumulation_steps));
    }
  }
  if (recipe.memory.prefetch > 0) {
    c.recipe.memory.prefetch = 0;
    c.changes.emplace_back("memory.prefetch", "0");
  }
  if (recipe.memory.order == AccumulationOrder::vertical) {
    c.recipe.memory.order = AccumulationOrder::horizontal;
    c.changes.emplace_back("memory.order", "\"horizontal\"");
  }
  return c;
}

// NVMe in place of host memory that would do is no suggestion of its own.
bool says_more(const Suggestion& suggestion, const std::vector<Suggestion>& all) {
  const auto does = [&](const Suggestion& other) {
    return &other != &suggestion &&
           std::equal(suggestion.changes.begin(), suggestion.changes.end(), other.changes.begin(), other.changes.end(),
                      [](const auto& mine, const auto& theirs) {
                        return mine == theirs ||
                               (mine.first == theirs.first && mine.second == "\"nvme\"" && theirs.second == "\"host\"");
                      });
  };
  return std::none_of(all.begin(), all.end(), does);
}

// What the recipe's step needs, if that fits. First it is planned with two micro-batches at most, which need no more
// than many and are listed sooner. Adds the tasks of its plans to `tasks`.
std::optional<Memory> memory_that_fits(const Recipe& recipe, int ranks, const Capacity& capacity, Purpose purpose,
                                       std::size_t& tasks) {
  constexpr std::int64_t kFew = 2;
  if (purpose == Purpose::train && recipe.accumulation_steps(ranks) > kFew) {
    Recipe few = recipe;
    few.training.global_batch_size.reset();
    few.training.gradient_accumulation_steps = kFew;
    const Job job = make_job(few, ranks, capacity, purpose);
    tasks += job.plan.tasks.size();
    if (!fits(job.plan, capacity)) return std::nullopt;
  }
  const Job job = make_job(recipe, ranks, capacity, purpose);
  tasks += job.plan.tasks.size();
  return fits(job.plan, capacity) ? std::optional(job.plan.memory) : std::nullopt;
}

// Whether all changes together would be enough, and one sequence at a time: else none of them is.
bool can_fit(const Recipe& recipe, int ranks, const Capacity& capacity) {
  Recipe least = with_least_memory(recipe, ranks, true).recipe;
  if (least.memory.nvme.empty()) least.memory.nvme = {"FOLDER"};
  least.zero.activations = Tier::nvme;
  least.training.precision = device::DType::bf16;
  least.training.global_batch_size.reset();
  least.training.gradient_accumulation_steps = 2;
  return fits(make_job(least, ranks, capacity).plan, capacity);
}

std::vector<Suggestion> find_nearest(const Recipe& recipe, int ranks, std::size_t units, const Capacity& capacity,
                                     Purpose purpose) {
  constexpr std::size_t kWanted = 4, kMostChanges = 4, kMostPlans = 160, kMostTasks = std::size_t{1} << 18;
  std::vector<Suggestion> found;
  if (purpose == Purpose::train && !can_fit(recipe, ranks, capacity)) return found;
  std::vector<Candidate> level{{recipe, {}}};
  std::set<std::vector<std::pair<std::string, std::string>>> seen;
  std::size_t plans = 0, tasks = 0;  // counted, not timed: every rank finds the same
  for (std::size_t depth = 0; depth < kMostChanges && found.empty(); ++depth) {
    std::vector<Candidate> next;
    for (const Candidate& candidate : level) {
      std::vector<Candidate> changed;
      add_changes(candidate, ranks, purpose, changed);
      for (Candidate& c : changed) {
        auto key = c.changes;
        std::sort(key.begin(), key.end());
        if (!plannable(c.recipe, units, ranks, purpose) || !seen.insert(key).second) continue;
        if (++plans > kMostPlans || tasks > kMostTasks) continue;
        if (const std::optional<Memory> memory = memory_that_fits(c.recipe, ranks, capacity, purpose, tasks))
          found.push_back({c.changes, *memory});
        next.push_back(std::move(c));
      }
    }
    level = std::move(next);
  }
  for (const bool one_by_one : {false, true}) {
    // Farther away than was searched: all at once.
    if (!found.empty() || recipe.memory.nvme.empty() || purpose != Purpose::train) break;
    const Candidate all = with_least_memory(recipe, ranks, one_by_one);
    if (!plannable(all.recipe, units, ranks, purpose)) continue;
    if (const std::optional<Memory> memory = memory_that_fits(all.recipe, ranks, capacity, purpose, tasks))
      found.push_back({all.changes, *memory});
  }
  if (found.empty() && recipe.memory.nvme.empty()) {
    Recipe with_drive = recipe;
    with_drive.memory.nvme = {"FOLDER"};
    found = find_nearest(with_drive, ranks, units, capacity, purpose);
    for (Suggestion& s : found) s.changes.insert(s.changes.begin(), {"memory.nvme", "\"FOLDER\""});
    return found;
  }
  std::vector<Suggestion> nearest;
  std::copy_if(found.begin(), found.end(), std::back_inserter(nearest),
               [&](const Suggestion& s) { return says_more(s, found); });
  if (nearest.size() > kWanted) nearest.resize(kWanted);
  return nearest;
}

}  // namespace

std::vector<Suggestion> nearest_that_fit(const Job& refused, const Capacity& capacity, Purpose purpose) {
  return find_nearest(refused.recipe, refused.ranks, refused.model->units.size(), capacity, purpose);
}

std::string refusal(const Job& job, const Capacity& capacity, const std::vector<Suggestion>& nearest) {
  std::string text;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    const std::size_t needed = job.plan.memory[tier].peak;
    if (needed <= capacity.tier[tier]) continue;
    text = fmt::format("it does not fit: each rank needs {} ({} bytes) of {} memory and memory.{} is {} ({} bytes)",
                       bytes_text(needed), needed, kTierNames[tier], kTierNames[tier], bytes_text(capacity.tier[tier]),
                       capacity.tier[tier]);
    break;
  }
  if (text.empty()) {
    const std::size_t device = job.plan.memory[0].peak, host = job.plan.memory[1].peak;
    text = fmt::format(
        "it does not fit: each rank needs {} of device and {} of host memory, {} bytes, and there are {} "
        "({} bytes) for both",
        bytes_text(device), bytes_text(host), device + host, bytes_text(capacity.together), capacity.together);
  }
  if (nearest.empty())
    return text +
           "; no change of stage, tiers, recomputation, micro-batch or prefetch was found with which it does: use more "
           "ranks or a smaller model";
  text += nearest.size() == 1 ? "; it fits with" : "; it fits with any of";
  for (const Suggestion& s : nearest) {
    text += "\n ";
    for (const auto& [key, value] : s.changes) {
      std::string plain = value;  // as a shell takes it
      std::erase(plain, '"');
      text += fmt::format(" --set {}={}", key, plain);
    }
    text += fmt::format("  ({})", memory_text(s.memory));
  }
  return text;
}

}  // namespace strata::runtime

#include "runtime/job/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <set>

#include "base/quantity.h"

namespace strata::runtime {
namespace {

// A recipe with some changes to its keys, for the search of what would fit.
struct Candidate {
  Recipe recipe;
  std::vector<std::pair<std::string, std::string>> changes;
};

// What changes do to the numbers of a run: nothing, another rounding of the same sums, or other losses.
enum class Numbers : std::uint8_t { same, rounded, other };
Numbers numbers_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  const auto has = [&](const char* key) {
    return std::any_of(changes.begin(), changes.end(), [&](const auto& change) { return change.first == key; });
  };
  if (has("training.precision")) return Numbers::other;
  return has("training.micro_batch_size") ? Numbers::rounded : Numbers::same;
}

void add_changes(const Candidate& from, int ranks, Purpose purpose, bool bf16, std::vector<Candidate>& out) {
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
  // Or back, where it is the host that is too small.
  const auto bring_back = [&](const char* key, Tier tier, Tier Recipe::Zero::*at) {
    if (tier != Tier::device) add(key, "\"device\"", [&](Recipe& c) { c.zero.*at = Tier::device; });
  };
  if (purpose == Purpose::train) offload("zero.optimizer", r.zero.optimizer, &Recipe::Zero::optimizer);
  if (purpose == Purpose::train && r.zero.optimizer != Tier::device)
    offload("zero.gradients", r.zero.gradients, &Recipe::Zero::gradients);
  if (purpose != Purpose::train || r.zero.optimizer != Tier::device)
    offload("zero.parameters", r.zero.parameters, &Recipe::Zero::parameters);
  if (purpose == Purpose::train && r.training.recompute.kind != Recompute::Kind::none)
    offload("zero.activations", r.zero.activations, &Recipe::Zero::activations);
  if (purpose == Purpose::train) {
    bring_back("zero.activations", r.zero.activations, &Recipe::Zero::activations);
    bring_back("zero.gradients", r.zero.gradients, &Recipe::Zero::gradients);
    bring_back("zero.optimizer", r.zero.optimizer, &Recipe::Zero::optimizer);
  }
  bring_back("zero.parameters", r.zero.parameters, &Recipe::Zero::parameters);
  if ((r.zero.stage == 3 && ranks > 1) || r.zero.parameters != Tier::device)
    for (const std::int64_t prefetch : {1, 0})
      if (prefetch < r.memory.prefetch)
        add("memory.prefetch", std::to_string(prefetch), [&](Recipe& c) { c.memory.prefetch = prefetch; });
  if (r.memory.order == AccumulationOrder::vertical)
    add("memory.order", "\"horizontal\"", [](Recipe& c) { c.memory.order = AccumulationOrder::horizontal; });
  if (bf16 && r.training.precision == device::DType::fp32)
    add("training.precision", "\"bf16\"", [](Recipe& c) { c.training.precision = device::DType::bf16; });
}

// Where a run keeps what it has, in the order of kStates.
using Tiers = std::array<Tier, 4>;
constexpr std::array<std::pair<const char*, Tier Recipe::Zero::*>, 4> kStates = {
    {{"zero.parameters", &Recipe::Zero::parameters},
     {"zero.gradients", &Recipe::Zero::gradients},
     {"zero.optimizer", &Recipe::Zero::optimizer},
     {"zero.activations", &Recipe::Zero::activations}}};

// Every choice of tiers that the recipe allows, those first that change the fewest.
std::vector<Tiers> choices_of_tiers(const Recipe& recipe, Purpose purpose) {
  std::vector<Tiers> all{
      {recipe.zero.parameters, recipe.zero.gradients, recipe.zero.optimizer, recipe.zero.activations}};
  const Tiers now = all[0];
  for (std::size_t state = 0; state < kStates.size(); ++state) {
    if (purpose != Purpose::train && state > 0) break;  // forwards alone have parameters
    const std::size_t before = all.size();
    for (std::size_t i = 0; i < before; ++i)
      for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        if (tier == now[state] || (tier == Tier::nvme && recipe.memory.nvme.empty())) continue;
        all.push_back(all[i]);
        all.back()[state] = tier;
      }
  }
  const auto changes = [&](const Tiers& tiers) {
    std::size_t changed = 0;
    for (std::size_t state = 0; state < tiers.size(); ++state) changed += tiers[state] != now[state] ? 1 : 0;
    return changed;
  };
  std::stable_sort(all.begin(), all.end(), [&](const Tiers& a, const Tiers& b) { return changes(a) < changes(b); });
  return all;
}

// One change of a candidate, and how it is made.
struct Step {
  std::vector<std::pair<std::string, std::string>> changes;
  std::function<void(Recipe&)> make;
};

// All that takes less memory, as steps of which each may be left out again: sharded, recomputed, in these tiers,
// nothing prefetched; one_by_one: sequence by sequence with the global batch kept, which is more where a step had one
// micro-batch alone, whose gradients need no sums.
std::vector<Step> all_steps(const Recipe& recipe, int ranks, Purpose purpose, const Tiers& tiers, bool one_by_one,
                            bool bf16) {
  std::vector<Step> steps;
  const auto add = [&](const char* key, std::string value, std::function<void(Recipe&)> make) {
    steps.push_back({{{key, std::move(value)}}, std::move(make)});
  };
  if (ranks > 1 && recipe.zero.stage < 3) add("zero.stage", "3", [](Recipe& c) { c.zero.stage = 3; });
  if (purpose == Purpose::train && recipe.training.recompute.kind != Recompute::Kind::block)
    add("training.recompute", "\"block\"", [](Recipe& c) { c.training.recompute = {Recompute::Kind::block, {}}; });
  for (std::size_t state = 0; state < kStates.size(); ++state) {
    const auto [key, at] = kStates[state];
    if (recipe.zero.*at == tiers[state]) continue;
    add(key, fmt::format("\"{}\"", kTierNames[static_cast<std::size_t>(tiers[state])]),
        [at = at, tier = tiers[state]](Recipe& c) { c.zero.*at = tier; });
  }
  if (const std::int64_t size = recipe.training.micro_batch_size; size > 1 && one_by_one) {
    add("training.micro_batch_size", "1", [](Recipe& c) { c.training.micro_batch_size = 1; });
    if (purpose == Purpose::train && !recipe.training.global_batch_size) {
      const std::int64_t times = recipe.accumulation_steps(ranks) * size;
      steps.back().changes.emplace_back("training.gradient_accumulation_steps", std::to_string(times));
      steps.back().make = [times](Recipe& c) {
        c.training.micro_batch_size = 1;
        c.training.gradient_accumulation_steps = times;
      };
    }
  }
  if (recipe.memory.prefetch > 0) add("memory.prefetch", "0", [](Recipe& c) { c.memory.prefetch = 0; });
  if (recipe.memory.order == AccumulationOrder::vertical)
    add("memory.order", "\"horizontal\"", [](Recipe& c) { c.memory.order = AccumulationOrder::horizontal; });
  if (bf16 && recipe.training.precision == device::DType::fp32)
    add("training.precision", "\"bf16\"", [](Recipe& c) { c.training.precision = device::DType::bf16; });
  return steps;
}

Candidate candidate_of(const Recipe& recipe, const std::vector<Step>& steps) {
  Candidate c{recipe, {}};
  for (const Step& step : steps) {
    step.make(c.recipe);
    c.changes.insert(c.changes.end(), step.changes.begin(), step.changes.end());
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
std::optional<Memory> memory_that_fits(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose,
                                       std::size_t& tasks) {
  const Recipe& recipe = workload.recipe;
  constexpr std::int64_t kFew = 2;
  if (purpose == Purpose::train && recipe.accumulation_steps(ranks) > kFew) {
    Recipe few = recipe;
    few.training.global_batch_size.reset();
    few.training.gradient_accumulation_steps = kFew;
    const Job job = make_job(workload.with(std::move(few)), ranks, capacity, purpose);
    tasks += job.plan.tasks.size();
    if (!fits(job.plan, capacity)) return std::nullopt;
  }
  const Job job = make_job(workload, ranks, capacity, purpose);
  tasks += job.plan.tasks.size();
  return fits(job.plan, capacity) ? std::optional(job.plan.memory) : std::nullopt;
}

// The search of what would fit.
class Search {
 public:
  // bf16: whether another precision may be among the changes.
  Search(const Workload& workload, int ranks, std::size_t units, const Capacity& capacity, Purpose purpose, bool bf16)
      : workload_(workload),
        recipe_(workload.recipe),
        ranks_(ranks),
        units_(units),
        capacity_(capacity),
        purpose_(purpose),
        bf16_(bf16) {}

  std::vector<Suggestion> run() {
    // First whether there is anything to be found: what follows lists hundreds of plans.
    std::vector<Suggestion> found;
    if (is_hopeless()) return found;
    const auto everything = all_at_once();
    if (!everything) return found;
    found = few_changes();
    if (found.empty()) found.push_back(without_the_needless(*everything));
    std::vector<Suggestion> nearest;
    std::copy_if(found.begin(), found.end(), std::back_inserter(nearest),
                 [&](const Suggestion& s) { return says_more(s, found); });
    std::stable_sort(nearest.begin(), nearest.end(), [](const Suggestion& a, const Suggestion& b) {
      return numbers_with(a.changes) < numbers_with(b.changes);
    });
    if (nearest.size() > kWanted) nearest.resize(kWanted);
    return nearest;
  }

 private:
  static constexpr std::size_t kWanted = 4, kMostChanges = 4, kMostPlans = 160, kMostTasks = std::size_t{1} << 18;

  // What the candidate needs, if it is a recipe that can be planned, and fits.
  std::optional<Memory> fit(const Candidate& c) {
    const Recipe::Zero& zero = c.recipe.zero;
    if (zero.activations != Tier::device && c.recipe.training.recompute.kind == Recompute::Kind::none)
      return std::nullopt;
    if (!plannable(c.recipe, units_, ranks_, purpose_)) return std::nullopt;
    return memory_that_fits(workload_.with(c.recipe), ranks_, capacity_, purpose_, tasks_);
  }

  // Whether no choice of tiers has room on the device: each is between some of these.
  bool is_hopeless() {
    for (const Tier tier : {Tier::nvme, Tier::host, Tier::device})
      for (const Tier activations : {tier, Tier::device})
        for (const bool one_by_one : {true, false}) {
          Recipe least = candidate_of(recipe_, all_steps(recipe_, ranks_, purpose_, {tier, tier, tier, activations},
                                                         one_by_one, bf16_))
                             .recipe;
          if (least.memory.nvme.empty()) least.memory.nvme = {"FOLDER"};
          if (purpose_ == Purpose::train) {
            least.training.gradient_accumulation_steps = std::min(least.accumulation_steps(ranks_), 2);
            least.training.global_batch_size.reset();
          }
          const Job job = make_job(workload_.with(std::move(least)), ranks_, capacity_, purpose_);
          if (job.plan.memory[0].peak <= capacity_[Tier::device]) return false;
        }
    return true;
  }

  // The choice of tiers nearest to the recipe's with which all else that takes less is enough.
  std::optional<std::vector<Step>> all_at_once() {
    for (const Tiers& tiers : choices_of_tiers(recipe_, purpose_))
      for (const bool one_by_one : {false, true}) {
        if (one_by_one && recipe_.training.micro_batch_size == 1) break;
        std::vector<Step> steps = all_steps(recipe_, ranks_, purpose_, tiers, one_by_one, bf16_);
        if (fit(candidate_of(recipe_, steps))) return steps;
      }
    return std::nullopt;
  }

  Suggestion without_the_needless(std::vector<Step> steps) {
    for (std::size_t i = steps.size(); i-- > 0;) {
      std::vector<Step> fewer = steps;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (fit(candidate_of(recipe_, fewer))) steps = std::move(fewer);
    }
    const Candidate least = candidate_of(recipe_, steps);
    return {least.changes, *fit(least)};
  }

  std::vector<Suggestion> few_changes() {
    std::vector<Suggestion> found;
    std::vector<Candidate> level{{recipe_, {}}};
    std::set<std::vector<std::pair<std::string, std::string>>> seen;
    std::size_t plans = 0;
    tasks_ = 0;
    const auto keeps_the_bits = [&] {
      return std::any_of(found.begin(), found.end(),
                         [](const Suggestion& s) { return numbers_with(s.changes) == Numbers::same; });
    };
    bool last = false;  // one change more than those found is worth it if none of them keeps the bits
    for (std::size_t depth = 0; depth < kMostChanges && !last && !keeps_the_bits(); ++depth) {
      last = !found.empty();
      std::vector<Candidate> next;
      for (const Candidate& candidate : level) {
        std::vector<Candidate> changed;
        add_changes(candidate, ranks_, purpose_, bf16_, changed);
        for (Candidate& c : changed) {
          auto key = c.changes;
          std::sort(key.begin(), key.end());
          if (!plannable(c.recipe, units_, ranks_, purpose_) || !seen.insert(key).second) continue;
          if (++plans > kMostPlans || tasks_ > kMostTasks) continue;
          if (const std::optional<Memory> memory = fit(c)) found.push_back({c.changes, *memory});
          next.push_back(std::move(c));
        }
      }
      level = std::move(next);
    }
    return found;
  }

  const Workload& workload_;
  const Recipe& recipe_;
  int ranks_;
  std::size_t units_;
  const Capacity& capacity_;
  Purpose purpose_;
  bool bf16_;
  std::size_t tasks_ = 0;  // of all plans: counted, not timed, so that every rank finds the same
};

}  // namespace

std::vector<Suggestion> nearest_that_fit(const Job& refused, const Capacity& capacity, Purpose purpose) {
  const std::size_t units = refused.model->units.size();
  const auto search = [&](const Workload& workload, bool bf16) {
    return Search(workload, refused.ranks, units, capacity, purpose, bf16).run();
  };
  // What changes the losses comes after all that does not, a drive to be named included.
  for (const bool bf16 : {false, true}) {
    if (bf16 && refused.recipe.training.precision != device::DType::fp32) break;
    if (auto found = search(refused, bf16); !found.empty()) return found;
    if (!refused.recipe.memory.nvme.empty()) continue;
    Workload with_drive = refused;
    with_drive.recipe.memory.nvme = {"FOLDER"};
    auto found = search(with_drive, bf16);
    for (Suggestion& s : found) s.changes.insert(s.changes.begin(), {"memory.nvme", "\"FOLDER\""});
    if (!found.empty()) return found;
  }
  return {};
}

namespace {

// The fewest of 2, 4, ... 64 times the job's ranks on which a step fits at ZeRO-3, each with this capacity, as planned;
// with the same batch if so many ranks can share it. Empty: none of them.
std::string ranks_that_fit(const Job& job, const Capacity& capacity) {
  const Recipe::Training& training = job.recipe.training;
  const std::int64_t batch = training.micro_batch_size * job.recipe.accumulation_steps(job.ranks) * job.ranks;
  for (int ranks = 2 * job.ranks; ranks <= 64 * job.ranks; ranks *= 2) {
    const bool same = batch % (training.micro_batch_size * ranks) == 0;
    Recipe recipe = job.recipe;
    recipe.zero.stage = 3;
    recipe.training.global_batch_size.reset();
    recipe.training.gradient_accumulation_steps = same ? batch / (training.micro_batch_size * ranks) : 1;
    if (fits(make_job(job.with(std::move(recipe)), ranks, capacity).plan, capacity))
      return fmt::format("{} ranks, each with as much memory, and zero.stage = 3{}", ranks,
                         same ? "" : " (losses change, as the batch grows)");
  }
  return "";
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
    text = fmt::format("it does not fit: each rank needs {} ({} bytes) of {} and memory.{} is {} ({} bytes)",
                       bytes_text(needed), needed, memory_of(tier), kTierNames[tier], bytes_text(capacity.tier[tier]),
                       capacity.tier[tier]);
    break;
  }
  if (text.empty()) {
    const std::size_t device = job.plan.memory[0].peak, host = job.plan.memory[1].peak;
    text = fmt::format(
        "it does not fit: each rank needs {} of {} and {} of {}, {} bytes, and only {} ({} bytes) are available for "
        "both",
        bytes_text(device), memory_of(0), bytes_text(host), memory_of(1), device + host, bytes_text(capacity.together),
        capacity.together);
  }
  if (nearest.empty()) {
    text += "; no change of stage, tiers, recomputation, micro-batch or prefetch was found that makes it fit";
    if (job.plan.forward_only) return text + ": use more ranks or a smaller model";
    const std::string ranks = ranks_that_fit(job, capacity);
    if (!ranks.empty()) return text + ": use " + ranks;
    return text + ", and more ranks do not help: use a smaller model, shorter sequences, or more memory for each rank";
  }
  text += nearest.size() == 1 ? "; it fits with" : "; it fits with any of";
  for (const Suggestion& s : nearest) {
    text += "\n ";
    for (const auto& [key, value] : s.changes) {
      std::string plain = value;  // as a shell takes it
      std::erase(plain, '"');
      text += fmt::format(" --set {}={}", key, plain);
    }
    constexpr const char* kNumbers[] = {"", "; same batch, rounded differently", "; losses change"};
    text += fmt::format("  ({}{})", memory_text(s.memory), kNumbers[static_cast<std::size_t>(numbers_with(s.changes))]);
  }
  return text;
}

}  // namespace strata::runtime

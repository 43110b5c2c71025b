#include "runtime/job/search/suggestion.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/job/choices.h"
#include "runtime/job/requirements.h"
#include "runtime/job/search/candidate.h"
#include "runtime/job/search/meshes.h"

namespace strata::runtime {
namespace {

// A suggestion of NVMe adds nothing if the same suggestion with host memory fits as well.
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

// The memory of a plan that fits, and the unit size above which it tiles; the largest unit's size if it tiles none.
struct Fit {
  Memory memory;
  std::size_t tile;
};

Fit fit_of(const StepPlan& plan) {
  std::size_t largest = 0;
  for (const UnitLayout& unit : plan.layout.units)
    largest = std::max(largest, unit.gathered_bytes(format_of(plan.dtype)));
  return {plan.memory, plan.tile_bytes > 0 ? plan.tile_bytes : largest};
}

Suggestion suggestion_of(Changes changes, const Fit& fit) {
  for (auto& [key, value] : changes)
    if (key == kTileKey) value = std::to_string(fit.tile);
  return {std::move(changes), fit.memory};
}

// Returns the memory of the recipe's step if it fits. Plans at most two micro-batches first, because these need no more
// memory than many and are planned faster. Adds the number of planned tasks to `tasks`.
std::optional<Fit> find_fit(const Workload& workload, int ranks, const Capacity& capacity, Purpose purpose,
                            std::size_t& tasks) {
  const Recipe& recipe = workload.recipe;
  constexpr int kFew = 2;
  if (purpose == Purpose::train && recipe.accumulation_steps(ranks) > kFew) {
    const Job job = draft_job(workload.with(with_few_micro_batches(recipe, ranks, kFew)), ranks, capacity, purpose);
    tasks += job.plan.tasks.size() + job.split_tasks;
    if (!fits(job.plan, capacity)) return std::nullopt;
  }
  const Job job = draft_job(workload, ranks, capacity, purpose);
  tasks += job.plan.tasks.size() * static_cast<std::size_t>(recipe.parallel.stages) + job.split_tasks;
  const std::optional<Memory> memory = memory_of_stages(job, capacity);
  if (!memory) return std::nullopt;
  Fit fit = fit_of(job.plan);
  fit.memory = *memory;
  return fit;
}

// State that the searches for one job share.
struct Searched {
  std::size_t tasks = 0;             // planned; together they plan at most kMaxPlannedTasks
  std::set<Changes> too_large = {};  // recipes with all savings that exceed the device, by their changes
};

// The search for changes that fit.
class Search {
 public:
  // `refused`: the workload's job, or a job with the same model and ranks. `layout`: the workload's state. `bf16`: the
  // precision may be changed as well.
  Search(const Workload& workload, const Job& refused, const Layout& layout, const Capacity& capacity, Purpose purpose,
         bool bf16, Searched& searched)
      : workload_(workload),
        recipe_(workload.recipe),
        scope_{refused.ranks, purpose, bf16, refused.model->hidden},
        ranks_(refused.ranks),
        units_(refused.model->units.size()),
        layout_(layout),
        capacity_(capacity),
        purpose_(purpose),
        searched_(searched) {}

  std::vector<Suggestion> run() {
    // Single changes are tried quickly. More changes mean planning hundreds of candidates, so first check whether a
    // solution exists.
    std::vector<Suggestion> found = few_changes(1);
    if (!keeps_the_bits(found)) {
      found.clear();
      if (cannot_fit()) return found;
      const auto everything = all_at_once();
      if (!everything) return found;
      allow(kMaxTasks);
      found = few_changes(kMaxChanges);
      if (found.empty()) found.push_back(without_the_needless(*everything));
    }
    std::vector<Suggestion> nearest;
    std::copy_if(found.begin(), found.end(), std::back_inserter(nearest),
                 [&](const Suggestion& s) { return says_more(s, found); });
    std::stable_sort(nearest.begin(), nearest.end(), [&](const Suggestion& a, const Suggestion& b) {
      return numbers_with(recipe_, a.changes) < numbers_with(recipe_, b.changes);
    });
    if (nearest.size() > kWanted) nearest.resize(kWanted);
    return nearest;
  }

  // The recipe as it is or, if all savings together suffice, with as few of them as possible.
  std::optional<Suggestion> nearest() {
    if (const std::optional<Fit> its = fit({recipe_, {}})) return suggestion_of({}, *its);
    const auto everything = all_at_once();
    if (!everything) return std::nullopt;
    return without_the_needless(*everything);
  }

 private:
  static constexpr std::size_t kWanted = 4, kMaxChanges = 4, kMaxPlans = 160, kMaxTasks = std::size_t{1} << 17;
  static constexpr std::size_t kMaxPlannedTasks = std::size_t{1} << 18, kMaxTasksOfRemoval = std::size_t{1} << 16;

  // Returns the memory that the candidate needs, or nothing if it does not fit or another key of the recipe excludes
  // it.
  std::optional<Fit> fit(const Candidate& c) {
    const Recipe::Zero& zero = c.recipe.zero;
    if (zero.activations != Tier::device && c.recipe.training.recompute.kind == Recompute::Kind::none)
      return std::nullopt;
    if (!plannable(c.recipe, units_, micro_batches_of(c.recipe, ranks_, purpose_))) return std::nullopt;
    // A plan of a large model takes a second or more, and most candidates have no room for its state.
    if (purpose_ == Purpose::train && !is_worth_planning(c.recipe, layout_, capacity_)) return std::nullopt;
    Changes key = c.changes;
    std::sort(key.begin(), key.end());
    if (const auto it = fits_.find(key); it != fits_.end()) return it->second;
    if (searched_.tasks > limit_) return std::nullopt;
    const std::size_t before = tasks_;
    std::optional<Fit>& found = fits_[key];
    try {
      found = find_fit(workload_.with(c.recipe), ranks_, capacity_, purpose_, tasks_);
    } catch (const Error&) {
      return std::nullopt;
    }
    searched_.tasks += tasks_ - before;
    return found;
  }

  // Lets the next part of the search plan this many tasks.
  void allow(std::size_t tasks) { limit_ = searched_.tasks + tasks; }

  bool keeps_the_bits(const std::vector<Suggestion>& found) const {
    return std::ranges::any_of(found,
                               [&](const Suggestion& s) { return numbers_with(recipe_, s.changes) == Numbers::same; });
  }

  // True if state and activations exceed the device in every choice of tiers. The choices tried here bound all others.
  // They are the same whether the recipe names a drive or not.
  bool cannot_fit() {
    Capacity device_alone = capacity_;
    device_alone.tier[1] = device_alone.tier[2] = device_alone.together = std::numeric_limits<std::size_t>::max();
    for (const Tier tier : {Tier::nvme, Tier::host, Tier::device})
      for (const Tier activations : {tier, Tier::device})
        for (const bool one_by_one : {true, false}) {
          Candidate c = candidate_of(recipe_, all_steps(recipe_, scope_, {tier, tier, tier, activations}, one_by_one));
          if (searched_.too_large.contains(c.changes)) continue;
          Recipe& least = c.recipe;
          if (least.memory.nvme.empty()) least.memory.nvme = {"FOLDER"};
          if (purpose_ == Purpose::train) least = with_few_micro_batches(least, ranks_, 2);
          if (purpose_ == Purpose::train && !state_may_fit(least, layout_, device_alone)) continue;
          try {
            const Job job = draft_job(workload_.with(std::move(least)), ranks_, capacity_, purpose_);
            if (job.plan.memory[0].peak <= capacity_[Tier::device]) return false;
          } catch (const Error&) {
            return false;  // keys exclude each other, and a recipe with fewer changes may fit
          }
          searched_.too_large.insert(std::move(c.changes));
        }
    return true;
  }

  // The choice of tiers nearest to the recipe's that suffices with all other savings together.
  std::optional<std::vector<Step>> all_at_once() {
    for (const Tiers& tiers : choices_of_tiers(recipe_, purpose_))
      for (const bool one_by_one : {false, true}) {
        if (one_by_one && recipe_.training.micro_batch_size == 1) break;
        std::vector<Step> steps = all_steps(recipe_, scope_, tiers, one_by_one);
        if (fit(candidate_of(recipe_, steps))) return steps;
      }
    return std::nullopt;
  }

  Suggestion without_the_needless(std::vector<Step> steps) {
    allow(kMaxTasksOfRemoval);
    for (std::size_t i = steps.size(); i-- > 0;) {
      std::vector<Step> fewer = steps;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      if (fit(candidate_of(recipe_, fewer))) steps = std::move(fewer);
    }
    const Candidate least = candidate_of(recipe_, steps);
    return suggestion_of(least.changes, *find_fit(workload_.with(least.recipe), ranks_, capacity_, purpose_, tasks_));
  }

  std::vector<Suggestion> few_changes(std::size_t most) {
    std::vector<Suggestion> found;
    std::vector<Candidate> level{{recipe_, {}}};
    std::set<Changes> seen;
    std::size_t plans = 0;
    tasks_ = 0;
    bool last = false;  // look one change deeper than the first solutions, unless one of them keeps the bits
    for (std::size_t depth = 0; depth < most && !last && !keeps_the_bits(found); ++depth) {
      last = !found.empty();
      std::vector<Candidate> next;
      for (const Candidate& candidate : level) {
        std::vector<Candidate> changed;
        add_changes(candidate, scope_, changed);
        for (Candidate& c : changed) {
          auto key = c.changes;
          std::sort(key.begin(), key.end());
          if (!plannable(c.recipe, units_, micro_batches_of(c.recipe, ranks_, purpose_)) || !seen.insert(key).second)
            continue;
          if (++plans > kMaxPlans || tasks_ > kMaxTasks) continue;
          if (const std::optional<Fit> its = fit(c)) found.push_back(suggestion_of(c.changes, *its));
          next.push_back(std::move(c));
        }
      }
      level = std::move(next);
    }
    return found;
  }

  const Workload& workload_;
  const Recipe& recipe_;
  Scope scope_;
  int ranks_;
  std::size_t units_;
  const Layout& layout_;
  const Capacity& capacity_;
  Purpose purpose_;
  std::size_t tasks_ = 0;  // planned so far; a count instead of a time limit, so that every rank finds the same
  Searched& searched_;
  std::size_t limit_ = kMaxPlannedTasks;        // of searched_.tasks in the current part of the search
  std::map<Changes, std::optional<Fit>> fits_;  // by the sorted changes
};

// The nearest changes that make the job fit on another mesh, together with those that lead to the mesh.
std::optional<Suggestion> on_mesh(const OtherMesh& mesh, const Job& refused, const Capacity& capacity, bool bf16,
                                  Searched& searched) {
  std::optional<Suggestion> found =
      Search(mesh.workload, refused, mesh.layout, capacity, Purpose::train, bf16, searched).nearest();
  if (!found) return found;
  Changes changes = mesh.changes;
  // The last value of a key counts.
  for (const auto& change : found->changes) {
    std::erase_if(changes, [&](const auto& c) { return c.first == change.first; });
    changes.push_back(change);
  }
  found->changes = std::move(changes);
  return found;
}

}  // namespace

std::vector<Suggestion> nearest_that_fit(const Job& refused, const Capacity& capacity, Purpose purpose) {
  // Meshes that change both degrees, or the losses, have a limit of their own: a search on the recipe's mesh may use
  // all of its own.
  Searched searched, of_further_meshes;
  const auto search = [&](const Workload& workload, bool bf16) {
    return Search(workload, refused, refused.plan.layout, capacity, purpose, bf16, searched).run();
  };
  const Recipe::Parallel& now = refused.recipe.parallel;
  std::vector<Degrees> degrees;
  if (purpose == Purpose::train) degrees = degrees_to_try(now, refused.ranks, refused.model->units.size());
  // The first of the other meshes on which the job fits.
  const auto on_another_mesh = [&](bool bf16, StepBatch batch) -> std::optional<Suggestion> {
    for (const Degrees d : degrees) {
      const bool both = d.tensor != now.tensor && d.stages != now.stages;
      Searched& its = both || bf16 || batch == StepBatch::smaller ? of_further_meshes : searched;
      if (const std::optional<OtherMesh> mesh = mesh_with(refused, d, batch))
        if (auto found = on_mesh(*mesh, refused, capacity, bf16, its)) return found;
    }
    return std::nullopt;
  };
  // Changes of the losses come last, even after solutions that need a drive to be named.
  const bool is_fp32 = refused.recipe.training.precision == device::DType::fp32;
  for (const bool bf16 : {false, true}) {
    if (bf16 && !is_fp32) break;
    Recipe recipe = refused.complete_recipe();
    if (auto found = search(refused.with(recipe), bf16); !found.empty()) return found;
    if (recipe.memory.nvme.empty()) {
      recipe.memory.nvme = {"FOLDER"};
      auto found = search(refused.with(recipe), bf16);
      for (Suggestion& s : found) s.changes.insert(s.changes.begin(), {"memory.nvme", "\"FOLDER\""});
      if (!found.empty()) return found;
    }
    if (bf16) break;
    if (auto found = on_another_mesh(false, StepBatch::same)) return {*std::move(found)};
  }
  std::vector<Suggestion> last;
  if (is_fp32)
    if (auto found = on_another_mesh(true, StepBatch::same)) last.push_back(*std::move(found));
  if (auto found = on_another_mesh(false, StepBatch::smaller)) last.push_back(*std::move(found));
  return last;
}

}  // namespace strata::runtime

#include <fmt/format.h>

#include <map>
#include <vector>

#include "runtime/plan/proof/proof.h"

namespace strata::runtime {
namespace {

// The state of a buffer over the ranks that share a layer.
struct SumState {
  enum class Kind : std::uint8_t { full, partial, summed, total };
  Kind kind = Kind::full;
  const Task* of = nullptr;  // the task that put it into this state
};

std::string text_of(const StepPlan& plan, const Task& task) {
  return fmt::format("task {} ({} of unit {}, micro-batch {}, stretch {})", &task - plan.tasks.data(),
                     traits_of(task.kind).name, task.unit, task.micro_batch, task.stretch);
}

// True if `task` is the stretch that follows the seam of the exchange.
bool follows_exchange(const Task& task, const Task& exchange) {
  const bool backward = task.kind == TaskKind::backward;
  return task.unit == exchange.unit && task.micro_batch == exchange.micro_batch && backward == exchange.backward &&
         task.stretch == exchange.stretch + 1;
}

}  // namespace

std::optional<std::string> find_unsummed(const StepPlan& plan) {
  std::vector<SumState> states(plan.buffers.size());
  for (const Task& task : plan.tasks)
    for (const Use& use : task.uses) {
      SumState& state = states[static_cast<std::size_t>(use.buffer)];
      const bool over_ranks = task.kind == TaskKind::exchange || task.kind == TaskKind::gather_rows;
      const bool sums = over_ranks && use.role == Role::partial;
      const bool partial = state.kind == SumState::Kind::partial;
      if (sums && !partial)
        return fmt::format("{} adds partial sums that {}", text_of(plan, task),
                           state.kind == SumState::Kind::summed ? "were added before" : "nothing has computed");
      if (partial && !sums)
        return fmt::format("{} uses partial sums of {} that were not added", text_of(plan, task),
                           text_of(plan, *state.of));
      if (use.role == Role::total && use.access == Access::read &&
          (state.kind != SumState::Kind::total || !follows_exchange(task, *state.of)))
        return fmt::format("{} reads a total that does not belong to the seam before it", text_of(plan, task));
      if (sums)
        state = {SumState::Kind::summed, &task};
      else if (use.role == Role::partial)
        state = {SumState::Kind::partial, &task};
      else if (use.role == Role::total && use.access == Access::write)
        state = {SumState::Kind::total, &task};
    }
  for (const SumState& state : states)
    if (state.kind == SumState::Kind::partial)
      return fmt::format("partial sums of {} are never added", text_of(plan, *state.of));
  return std::nullopt;
}

namespace {

bool is_gradient(Role role) {
  return role == Role::gradients || role == Role::shared_gradients || role == Role::node_sum;
}

bool adds(TaskKind kind) {
  return kind == TaskKind::accumulate || kind == TaskKind::node_sum || kind == TaskKind::reduce;
}

// True if the use leaves a gradient that must still be added: a call's, or a rounded sum of several.
bool leaves(const Task& task, const Use& use) {
  if (use.access == Access::read || !is_gradient(use.role)) return false;
  return task.kind == TaskKind::backward || task.kind == TaskKind::loss || task.kind == TaskKind::round ||
         task.kind == TaskKind::node_sum;
}

class Count {
 public:
  explicit Count(const StepPlan& plan)
      : plan_(plan), gradients_(plan.buffers.size()), units_(plan.layout.units.size()) {}

  std::optional<std::string> run() {
    for (const Task& task : plan_.tasks) {
      for (const Use& use : task.uses)
        if (is_gradient(use.role))
          if (auto violation = look_at(task, use)) return violation;
      if (auto violation = look_at_unit(task)) return violation;
    }
    for (const Gradient& gradient : gradients_)
      if (plan_.has_sums() && gradient.waits)
        return fmt::format("the gradient of {} is never added", text_of(*gradient.of));
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
      if (auto violation = look_at_end(unit)) return violation;
    return std::nullopt;
  }

 private:
  struct Gradient {
    bool waits = false;        // to be added
    const Task* of = nullptr;  // the task that left it
  };
  struct Unit {
    std::size_t normed = 0;                    // elements that the norm has counted
    std::map<int, std::size_t> combined = {};  // by sharer
  };

  std::string text_of(const Task& task) const {
    return fmt::format("task {} ({} of unit {}, micro-batch {})", &task - plan_.tasks.data(), traits_of(task.kind).name,
                       task.unit, task.micro_batch);
  }

  std::optional<std::string> look_at(const Task& task, const Use& use) {
    Gradient& gradient = gradients_[static_cast<std::size_t>(use.buffer)];
    if (adds(task.kind) && use.access == Access::read) {
      if (!gradient.of) return fmt::format("{} adds a gradient that nothing has computed", text_of(task));
      if (!gradient.waits) return fmt::format("{} adds a gradient that was added before", text_of(task));
      const bool rounded = gradient.of->kind == TaskKind::round;
      if (task.unit != gradient.of->unit || (!rounded && task.micro_batch != gradient.of->micro_batch))
        return fmt::format("{} adds the gradient of {}", text_of(task), text_of(*gradient.of));
      gradient.waits = false;
    } else if (leaves(task, use)) {
      const bool same = gradient.of && gradient.of->unit == task.unit && gradient.of->micro_batch == task.micro_batch;
      if (plan_.has_sums() && gradient.waits && !same)  // parts and stretches of a call each write some of it
        return fmt::format("{} overwrites the gradient of {}, which was not added", text_of(task),
                           text_of(*gradient.of));
      gradient = {true, &task};
    } else if (plan_.has_sums() && gradient.waits) {
      return fmt::format("{} uses the gradient of {}, which was not added", text_of(task), text_of(*gradient.of));
    }
    return std::nullopt;
  }

  std::optional<std::string> look_at_unit(const Task& task) {
    if (task.kind != TaskKind::reduce && task.kind != TaskKind::combine && task.kind != TaskKind::norm)
      return std::nullopt;
    const auto holder = task.shared ? plan_.layout.units[static_cast<std::size_t>(task.unit)].shared->unit : task.unit;
    Unit& unit = units_[static_cast<std::size_t>(holder)];
    const UnitLayout& layout = plan_.layout.units[static_cast<std::size_t>(holder)];
    const std::size_t elements = task.end > task.begin ? task.end - task.begin : layout.padded();
    if (task.kind == TaskKind::norm) {
      unit.normed += elements;
      return std::nullopt;
    }
    // Chunks of a unit are combined and counted one at a time.
    if (unit.normed > 0 && !(task.kind == TaskKind::combine && task.part >= 0))
      return fmt::format("{} comes after the norm has counted unit {}", text_of(task), holder);
    if (task.kind == TaskKind::combine) unit.combined[sharer_of(task, layout)] += elements;
    return std::nullopt;
  }
  // The unit whose sum a combine adds. If several units share the same elements, it is the next of them.
  int sharer_of(const Task& task, const UnitLayout& layout) {
    const Unit& unit = units_[static_cast<std::size_t>(task.unit)];
    for (const int sharer : layout.sharers) {
      const models::ElementRange& shared = plan_.layout.units[static_cast<std::size_t>(sharer)].shared->elements;
      const auto done = unit.combined.find(sharer);
      if (task.begin >= shared.begin && task.end <= shared.end &&
          (done == unit.combined.end() || done->second < shared.size()))
        return sharer;
    }
    return -1;
  }

  std::optional<std::string> look_at_end(std::size_t number) const {
    const UnitLayout& layout = plan_.layout.units[number];
    const Unit& unit = units_[number];
    const bool trains = !plan_.forward_only && plan_.own.has(static_cast<int>(number)) && layout.trains();
    const std::size_t expected = trains ? layout.padded() : 0;
    if (unit.normed != expected)
      return fmt::format("the norm counts {} elements of unit {}, which has {}", unit.normed, number, expected);
    for (const auto& [sharer, elements] : unit.combined)
      if (sharer < 0) return fmt::format("unit {} receives a sum that no other unit computes for it", number);
    if (!trains || !plan_.has_sums()) return std::nullopt;
    for (const int sharer : layout.sharers) {
      const std::size_t shared = plan_.layout.units[static_cast<std::size_t>(sharer)].shared->elements.size();
      const auto done = unit.combined.find(sharer);
      if (done == unit.combined.end() || done->second != shared)
        return fmt::format("{} of the {} elements that unit {} computes for unit {} are added",
                           done == unit.combined.end() ? 0 : done->second, shared, sharer, number);
    }
    return std::nullopt;
  }

  const StepPlan& plan_;
  std::vector<Gradient> gradients_;  // by buffer
  std::vector<Unit> units_;
};

}  // namespace

std::optional<std::string> find_miscounted(const StepPlan& plan) {
  return Count(plan).run();
}

}  // namespace strata::runtime

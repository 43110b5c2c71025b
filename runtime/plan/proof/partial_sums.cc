#include "runtime/plan/proof/partial_sums.h"

#include <fmt/format.h>

#include <vector>

namespace strata::runtime {
namespace {

// The state of a buffer over the ranks that share a layer.
struct State {
  enum class Kind : std::uint8_t { whole, partial, summed, total };
  Kind kind = Kind::whole;
  const Task* of = nullptr;  // the task that made it so
};

std::string text_of(const StepPlan& plan, const Task& task) {
  return fmt::format("task {} ({} of unit {}, micro-batch {}, stretch {})", &task - plan.tasks.data(),
                     traits_of(task.kind).name, task.unit, task.micro_batch, task.stretch);
}

// Whether `task` is the stretch that follows the seam of the exchange.
bool follows_exchange(const Task& task, const Task& exchange) {
  const bool backward = task.kind == TaskKind::backward;
  return task.unit == exchange.unit && task.micro_batch == exchange.micro_batch && backward == exchange.backward &&
         task.stretch == exchange.stretch + 1;
}

}  // namespace

std::optional<std::string> find_unsummed(const StepPlan& plan) {
  std::vector<State> states(plan.buffers.size());
  for (const Task& task : plan.tasks)
    for (const Use& use : task.uses) {
      State& state = states[static_cast<std::size_t>(use.buffer)];
      const bool over_ranks = task.kind == TaskKind::exchange || task.kind == TaskKind::gather_rows;
      const bool sums = over_ranks && use.role == Role::partial;
      const bool partial = state.kind == State::Kind::partial;
      if (sums && !partial)
        return fmt::format("{} adds partial sums that {}", text_of(plan, task),
                           state.kind == State::Kind::summed ? "were added before" : "nothing has computed");
      if (partial && !sums)
        return fmt::format("{} uses partial sums of {} that were not added", text_of(plan, task),
                           text_of(plan, *state.of));
      if (use.role == Role::total && use.access == Access::read &&
          (state.kind != State::Kind::total || !follows_exchange(task, *state.of)))
        return fmt::format("{} reads a total that is not of the seam before it", text_of(plan, task));
      if (sums)
        state = {State::Kind::summed, &task};
      else if (use.role == Role::partial)
        state = {State::Kind::partial, &task};
      else if (use.role == Role::total && use.access == Access::write)
        state = {State::Kind::total, &task};
    }
  for (const State& state : states)
    if (state.kind == State::Kind::partial)
      return fmt::format("partial sums of {} are never added", text_of(plan, *state.of));
  return std::nullopt;
}

}  // namespace strata::runtime

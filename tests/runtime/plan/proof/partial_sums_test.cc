#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "runtime/plan/proof/sums.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;
using testing::Optional;

class PartialSums : public testing::Test {
 protected:
  PartialSums() : job_(tiny_job({"parallel.tensor=2", "training.recompute=block"}, 2)), plan_(job_.plan) {}

  std::size_t find(const std::function<bool(const Task&)>& is) const {
    const auto found = std::ranges::find_if(plan_.tasks, is);
    EXPECT_NE(found, plan_.tasks.end());
    return static_cast<std::size_t>(found - plan_.tasks.begin());
  }
  std::size_t first_exchange() const {
    return find([](const Task& task) { return task.kind == TaskKind::exchange; });
  }
  Use& use(Task& task, Role role) { return *std::ranges::find(task.uses, role, &Use::role); }

  Job job_;
  StepPlan plan_;
};

TEST_F(PartialSums, OfAPlanAreAddedOnce) {
  EXPECT_EQ(find_unsummed(plan_), std::nullopt);
  const auto exchanges = std::ranges::count(plan_.tasks, TaskKind::exchange, &Task::kind);
  const auto of = [&](TaskKind kind, bool embedding) {
    return std::ranges::count_if(plan_.tasks, [&](const Task& task) {
      return task.kind == kind && task.stretch == 0 && (task.unit == 0) == embedding;
    });
  };
  const auto of_block = 5 * of(TaskKind::forward, false);
  const auto of_vocabulary = of(TaskKind::forward, true) + 2 * of(TaskKind::loss, false);
  EXPECT_GT(of_vocabulary, 0);
  EXPECT_EQ(exchanges, of_block + of_vocabulary)
      << "of a block two in forward, one when it is recomputed, two in backward; of the embedding one; of the head one "
         "of statistics, one in backward";
}

// If ranks divide the rows, what they put together is proven in the same way.
TEST(PartialSumsOfDividedRows, AreAddedOnce) {
  const Job job = tiny_job({"parallel.tensor=2", "parallel.sequence=true", "training.recompute=block"}, 2);
  EXPECT_EQ(find_unsummed(job.plan), std::nullopt);
  StepPlan plan = job.plan;
  const auto gather = std::ranges::find_if(
      plan.tasks, [](const Task& task) { return task.kind == TaskKind::gather_rows && task.stretch >= 0; });
  ASSERT_NE(gather, plan.tasks.end());
  plan.tasks.erase(gather);
  EXPECT_THAT(find_unsummed(plan), Optional(HasSubstr("reads a total that is not of the seam before it")));
}

TEST_F(PartialSums, ThatNothingAddsAreFound) {
  plan_.tasks.erase(plan_.tasks.begin() + static_cast<std::ptrdiff_t>(first_exchange()));
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("reads a total that is not of the seam before it")));
}

TEST_F(PartialSums, ThatAreAddedTwiceAreFound) {
  const std::size_t at = first_exchange();
  plan_.tasks.insert(plan_.tasks.begin() + static_cast<std::ptrdiff_t>(at), plan_.tasks[at]);
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("were added before")));
}

TEST_F(PartialSums, ReadAsAWholeAreFound) {
  const std::size_t at = first_exchange();
  const int partial = use(plan_.tasks[at], Role::partial).buffer;
  Task& next = plan_.tasks[find([](const Task& task) { return task.stretch == 1 && task.kind == TaskKind::forward; })];
  use(next, Role::total).buffer = partial;
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("reads a total that is not of the seam before it")));
  plan_ = job_.plan;
  Task reader = plan_.tasks[at];
  reader.kind = TaskKind::send;
  reader.uses = {{partial, Role::source, Access::read}};
  plan_.tasks.insert(plan_.tasks.begin() + static_cast<std::ptrdiff_t>(at), reader);
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("that were not added")));
}

TEST_F(PartialSums, TotalsOfAnotherSeamAreFound) {
  for (const auto& change :
       {+[](Task& exchange) { ++exchange.stretch; }, +[](Task& exchange) { ++exchange.micro_batch; },
        +[](Task& exchange) { exchange.backward = true; }, +[](Task& exchange) { ++exchange.unit; }}) {
    plan_ = job_.plan;
    change(plan_.tasks[first_exchange()]);
    EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("reads a total that is not of the seam before it")));
  }
}

TEST_F(PartialSums, LeftAtTheEndAreFound) {
  const auto last = std::ranges::find(plan_.tasks.rbegin(), plan_.tasks.rend(), TaskKind::exchange, &Task::kind);
  plan_.tasks.erase(std::prev(last.base()), plan_.tasks.end());
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("are never added")));
}

}  // namespace
}  // namespace strata::runtime

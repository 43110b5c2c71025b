#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/proof/sums.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;
using testing::Optional;

class GradientCounts : public testing::Test {
 protected:
  GradientCounts()
      : plan_(
            tiny_job({"zero.stage=3", "training.gradient_accumulation_steps=2", "training.recompute=block"}, 2).plan) {}

  std::vector<Task>::iterator first(TaskKind kind) {
    const auto found = std::ranges::find(plan_.tasks, kind, &Task::kind);
    EXPECT_NE(found, plan_.tasks.end());
    return found;
  }

  StepPlan plan_;
};

TEST_F(GradientCounts, OfPlansAreRight) {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {},
           {"zero.stage=2", "training.reduce=fast", "training.gradient_accumulation_steps=3"},
           {"zero.stage=3", "memory.order=vertical", "training.gradient_accumulation_steps=2"},
           {"parallel.stages=2", "training.gradient_accumulation_steps=4"},
           {"parallel.tensor=2", "training.recompute=block"},
           {"zero.gradients=host", "zero.optimizer=host", "zero.stage=2"}})
    for (const int ranks : {2, 4}) EXPECT_EQ(find_miscounted(tiny_job(sets, ranks).plan), std::nullopt) << ranks;
  EXPECT_EQ(find_miscounted(tiny_job({}, 1).plan), std::nullopt) << "without sums";
}

// A gradient that is never reduced, twice, or for another micro-batch or unit.
TEST_F(GradientCounts, AGradientThatIsNotAddedOnceIsFound) {
  const StepPlan right = plan_;
  plan_.tasks.erase(first(TaskKind::reduce));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("is never added")));
  plan_ = right;
  first(TaskKind::reduce)->kind = TaskKind::update;
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("which was not added")));
  plan_ = right;
  plan_.tasks.insert(first(TaskKind::reduce), *first(TaskKind::reduce));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("was added before")));
  plan_ = right;
  ++first(TaskKind::reduce)->micro_batch;
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("adds the gradient of task")));
  plan_ = right;
  std::erase_if(plan_.tasks, [](const Task& task) { return task.kind == TaskKind::backward; });
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("that nothing has computed")));
  plan_ = right;
  const auto last = std::ranges::find(plan_.tasks.rbegin(), plan_.tasks.rend(), TaskKind::reduce, &Task::kind);
  plan_.tasks.erase(std::prev(last.base()));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("is never added")));
}

// As in a gradient norm that counts a tied table twice, or a stage that leaves its part out.
TEST_F(GradientCounts, ANormThatDoesNotCountEachUnitOnceIsFound) {
  const StepPlan right = plan_;
  plan_.tasks.insert(first(TaskKind::norm), *first(TaskKind::norm));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("the norm counts")));
  plan_ = right;
  plan_.tasks.erase(first(TaskKind::norm));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("the norm counts 0 elements")));
  plan_ = right;
  std::iter_swap(first(TaskKind::norm), first(TaskKind::reduce));
  EXPECT_NE(find_miscounted(plan_), std::nullopt) << "before the last gradient is added";
}

TEST_F(GradientCounts, ASharedTensorsGradientThatIsNotAddedOnceIsFound) {
  const StepPlan right = plan_;
  plan_.tasks.erase(first(TaskKind::combine));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("0 of")));
  plan_ = right;
  plan_.tasks.insert(first(TaskKind::combine), *first(TaskKind::combine));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("that no other unit has for it")));
}

}  // namespace
}  // namespace strata::runtime

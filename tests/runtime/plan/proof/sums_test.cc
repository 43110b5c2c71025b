#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "runtime/plan/proof/proof.h"
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

TEST_F(PartialSums, AreAddedOnceByAPlan) {
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
  EXPECT_THAT(find_unsummed(plan), Optional(HasSubstr("reads a total that does not belong to the seam before it")));
}

TEST_F(PartialSums, MissingAdditionsAreDetected) {
  plan_.tasks.erase(plan_.tasks.begin() + static_cast<std::ptrdiff_t>(first_exchange()));
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("reads a total that does not belong to the seam before it")));
}

TEST_F(PartialSums, DoubleAdditionsAreDetected) {
  const std::size_t at = first_exchange();
  plan_.tasks.insert(plan_.tasks.begin() + static_cast<std::ptrdiff_t>(at), plan_.tasks[at]);
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("were added before")));
}

TEST_F(PartialSums, PrematureReadsAreDetected) {
  const std::size_t at = first_exchange();
  const int partial = use(plan_.tasks[at], Role::partial).buffer;
  Task& next = plan_.tasks[find([](const Task& task) { return task.stretch == 1 && task.kind == TaskKind::forward; })];
  use(next, Role::total).buffer = partial;
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("reads a total that does not belong to the seam before it")));
  plan_ = job_.plan;
  Task reader = plan_.tasks[at];
  reader.kind = TaskKind::send;
  reader.uses = {{partial, Role::source, Access::read}};
  plan_.tasks.insert(plan_.tasks.begin() + static_cast<std::ptrdiff_t>(at), reader);
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("that were not added")));
}

TEST_F(PartialSums, TotalsOfAnotherSeamAreDetected) {
  for (const auto& change :
       {+[](Task& exchange) { ++exchange.stretch; }, +[](Task& exchange) { ++exchange.micro_batch; },
        +[](Task& exchange) { exchange.backward = true; }, +[](Task& exchange) { ++exchange.unit; }}) {
    plan_ = job_.plan;
    change(plan_.tasks[first_exchange()]);
    EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("reads a total that does not belong to the seam before it")));
  }
}

TEST_F(PartialSums, LeftoversAreDetected) {
  const auto last = std::ranges::find(plan_.tasks.rbegin(), plan_.tasks.rend(), TaskKind::exchange, &Task::kind);
  plan_.tasks.erase(std::prev(last.base()), plan_.tasks.end());
  EXPECT_THAT(find_unsummed(plan_), Optional(HasSubstr("are never added")));
}

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

TEST_F(GradientCounts, AreCorrectInPlans) {
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

// A gradient is never reduced, is reduced twice, or for another micro-batch or unit.
TEST_F(GradientCounts, DetectAGradientThatIsNotAddedOnce) {
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

// This happens if a gradient norm counts a tied table twice, or if a stage omits its part.
TEST_F(GradientCounts, DetectANormThatMiscountsAUnit) {
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

TEST_F(GradientCounts, DetectAMiscountedSharedGradient) {
  const StepPlan right = plan_;
  plan_.tasks.erase(first(TaskKind::combine));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("0 of")));
  plan_ = right;
  plan_.tasks.insert(first(TaskKind::combine), *first(TaskKind::combine));
  EXPECT_THAT(find_miscounted(plan_), Optional(HasSubstr("that no other unit computes for it")));
}

}  // namespace
}  // namespace strata::runtime

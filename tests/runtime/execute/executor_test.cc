#include "runtime/execute/executor.h"

#include <gtest/gtest.h>

#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

// The proof also runs in production. If a mistake of the planner leaves out a wait, the program ends before the first
// step and says what is wrong.
TEST(ExecutorDeathTest, RefusesAnInvalidPlan) {
  Job job = tiny_job({"training.precision=bf16"}, 1);
  {
    const auto world = comm::solo_world();
    const Executor executor(job.plan, *job.model, *world, {}, 1);
    EXPECT_GT(executor.validate_ms(), 0);
  }
  for (Task& task : job.plan.tasks)
    if (task.kind == TaskKind::update) task.waits.clear();
  const auto run = [&] {
    const auto world = comm::solo_world();
    const Executor executor(job.plan, *job.model, *world, {}, 1);
  };
  EXPECT_DEATH(run(), "the plan of the step is valid.*update.*may run at the same time and share memory");
}

}  // namespace
}  // namespace strata::runtime

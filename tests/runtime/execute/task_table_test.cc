#include <gtest/gtest.h>

#include <set>

#include "runtime/execute/executor.h"
#include "runtime/tasks/collectives/reduce.h"
#include "runtime/tasks/copy.h"
#include "runtime/tasks/pass.h"

namespace strata::runtime {
namespace {

// StepBoundary does the host's work between steps. Every other kind of task has its own struct.
TEST(TaskTable, HasEveryKindExceptTheHosts) {
  const std::set<TaskKind> of_host = {TaskKind::copy_scalars, TaskKind::host_write, TaskKind::host_read};
  for (const TaskTraits& traits : kTaskTraits)
    EXPECT_EQ(run_of(traits.kind) == nullptr, of_host.count(traits.kind) == 1) << traits.name;
  EXPECT_EQ(run_of(TaskKind::reduce), &ReduceGradient::run);
  EXPECT_EQ(run_of(TaskKind::recompute), &Forward::run);
  for (const TaskKind kind : {TaskKind::upload, TaskKind::download, TaskKind::read, TaskKind::write})
    EXPECT_EQ(run_of(kind), &Copy::run);
}

}  // namespace
}  // namespace strata::runtime

#include <gtest/gtest.h>

#include "runtime/memory/storage.h"

namespace strata::runtime {
namespace {

Task task_with(std::initializer_list<int> buffers) {
  Task task{TaskKind::forward, LaneId::compute};
  for (const int buffer : buffers) task.uses.push_back({buffer, Role::workspace, Access::update});
  return task;
}

// One buffer is always alive. Of two others, one ends in the task before the other begins, so they never overlap, in
// this step or the next.
TEST(MemoryMeter, CountsBuffersThatAreAliveTogether) {
  StepPlan plan{};
  plan.buffers = {{"lasting", Kind::parameters, Tier::device, 4096, true, true, 0},
                  {"first", Kind::workspace, Tier::device, 8192, false, false, 4096},
                  {"second", Kind::workspace, Tier::device, 4096, false, false, 4096},
                  {"next to it", Kind::staging, Tier::device, 4096, false, false, 8192}};
  plan.tasks = {task_with({0, 1}), task_with({1}), task_with({2, 3}), task_with({2})};
  MemoryMeter meter(plan);
  const auto kind = [&](Kind k) {
    return meter.peak()[static_cast<std::size_t>(Tier::device)].by_kind[static_cast<std::size_t>(k)];
  };
  EXPECT_EQ(kind(Kind::parameters), 4096u);
  EXPECT_EQ(kind(Kind::workspace), 0u);
  for (int step = 0; step < 2; ++step)
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) meter.issue(t);
  EXPECT_EQ(kind(Kind::workspace), 8192u);
  EXPECT_EQ(kind(Kind::staging), 4096u);
  EXPECT_EQ(meter.peak()[static_cast<std::size_t>(Tier::device)].peak, 12288u);
  EXPECT_EQ(meter.peak()[static_cast<std::size_t>(Tier::host)].peak, 0u);
}

}  // namespace
}  // namespace strata::runtime

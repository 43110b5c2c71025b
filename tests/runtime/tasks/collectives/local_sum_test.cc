#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/tasks/collectives/reduce.h"
#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

using device::DType;

// The gradient of a part of unit 1, in bf16, and the rank's own sum of it.
struct LocalSum {
  explicit LocalSum(bool shared = false)
      : c(make_case(small(true), 2, 2, 3, DType::bf16, true, false, 1, {})), run(c.request) {
    const UnitPart which = shared ? UnitPart{4} : UnitPart{1, 2};
    const ElementRange range = shared ? run.draft.layout(4).shared->elements : run.draft.range_of(which);
    gradient = {which, 1, range, shared, run.add_buffer(range.size() * 2)};
    sum = run.add_buffer(range.size() * sizeof(float));
  }
  std::size_t size() const { return gradient.range.size(); }
  void fill(float x) {
    auto values = run.as<device::bf16>(gradient.buffer);
    std::fill(values.begin(), values.end(), device::from_float<device::bf16>(x));
  }

  PlanCase c;
  TaskRun run;
  CallGradient gradient;
  int sum;
};

TEST(LocalSum, AccumulateAddsTheGradientToTheSum) {
  for (const bool shared : {false, true})
    for (const bool first : {true, false}) {
      LocalSum s(shared);
      Accumulate{s.gradient, {s.sum, first}}.add(s.run.draft);
      const Task& task = s.run.task();
      EXPECT_EQ(task.kind, TaskKind::accumulate);
      EXPECT_EQ(task.lane, LaneId::reduce);
      EXPECT_EQ(task.unit, shared ? 4 : 1);
      EXPECT_EQ(task.part, shared ? -1 : 2);
      EXPECT_EQ(task.micro_batch, 1);
      EXPECT_EQ(task.shared, shared);
      EXPECT_EQ(task.first, first);
      EXPECT_EQ(task.begin, s.gradient.range.begin);
      EXPECT_EQ(task.end, s.gradient.range.end);
      ASSERT_EQ(task.uses.size(), 2u);
      const Use& gradient = use_of(task, shared ? Role::shared_gradients : Role::gradients);
      EXPECT_EQ(gradient.buffer, s.gradient.buffer);
      EXPECT_EQ(gradient.access, Access::read);
      EXPECT_EQ(use_of(task, Role::local_sum).buffer, s.sum);
      EXPECT_EQ(use_of(task, Role::local_sum).access, first ? Access::write : Access::update);
      EXPECT_EQ(task.cost.bytes, static_cast<double>(s.size() * (2 + 4 + 4))) << "read; the sum, read and written";
    }
}

TEST(LocalSum, RoundReplacesTheLastGradient) {
  LocalSum s;
  Round{s.gradient, {s.sum, false}}.add(s.run.draft);
  const Task& task = s.run.task();
  EXPECT_EQ(task.kind, TaskKind::round);
  EXPECT_EQ(task.lane, LaneId::reduce);
  EXPECT_EQ(task.micro_batch, -1) << "it belongs to all micro-batches";
  EXPECT_EQ(use_of(task, Role::gradients).access, Access::write);
  EXPECT_EQ(use_of(task, Role::gradients).buffer, s.gradient.buffer);
  EXPECT_EQ(use_of(task, Role::local_sum).access, Access::read);
  EXPECT_EQ(task.cost.bytes, static_cast<double>(s.size() * (2 + 4 + 4)));
}

// 1 + 2^-8 is not a bf16 number, so only the sum can hold it until it is rounded to even.
TEST(LocalSum, AddsInFp32AndRoundsOnce) {
  LocalSum s;
  Accumulate{s.gradient, {s.sum, true}}.add(s.run.draft);
  Accumulate{s.gradient, {s.sum, false}}.add(s.run.draft);
  Round{s.gradient, {s.sum, false}}.add(s.run.draft);
  s.run.place();
  const auto sum = s.run.as<float>(s.sum).first(s.size());
  s.fill(1);
  s.run.run(0);
  EXPECT_EQ(std::count(sum.begin(), sum.end(), 1.0f), static_cast<std::ptrdiff_t>(s.size())) << "starts from NaN";
  s.fill(0x1p-8f);
  s.run.run(1);
  EXPECT_EQ(std::count(sum.begin(), sum.end(), 1 + 0x1p-8f), static_cast<std::ptrdiff_t>(s.size()));
  s.run.run(1);
  s.run.run(1);  // 1 + 3 * 2^-8, between 1 + 2^-7 and 1 + 2 * 2^-7
  s.run.run(2);
  for (std::size_t i = 0; i < s.size(); ++i)
    ASSERT_EQ(device::to_float(s.run.as<device::bf16>(s.gradient.buffer)[i]), 1 + 0x1p-6f) << i;
}

}  // namespace
}  // namespace strata::runtime

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "runtime/plan/passes.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::size_t kBytes = 4096;

// Hand-made plans: buffers of one page on the device, and tasks that use all of each buffer.
class WaitsTest : public testing::Test {
 protected:
  WaitsTest() { plan_.device = {}; }

  int buffer(std::size_t offset) {
    plan_.buffers.push_back({"buffer", Kind::workspace, Tier::device, kBytes, true, false, offset});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }
  void task(LaneId lane, std::initializer_list<Use> uses, When when = When::always) {
    Task& task = plan_.tasks.emplace_back(Task{TaskKind::forward, lane});
    task.uses = uses;
    task.when = when;
  }
  static Use read(int buffer) { return {buffer, Role::x, Access::read}; }
  static Use write(int buffer) { return {buffer, Role::y, Access::write}; }
  const std::vector<int>& waits(std::size_t task) {
    derive_waits(plan_);
    return plan_.tasks[task].waits;
  }

  StepPlan plan_{};
};

TEST_F(WaitsTest, AReadWaitsForTheWriteAndTheNextWriteForTheRead) {
  const int a = buffer(0);
  task(LaneId::gather, {write(a)});
  task(LaneId::compute, {read(a)});
  EXPECT_THAT(waits(1), ElementsAre(0));
  EXPECT_THAT(waits(0), ElementsAre(1)) << "the previous step's";
}

TEST_F(WaitsTest, ReadsDoNotWaitForReads) {
  const int a = buffer(0);
  task(LaneId::compute, {read(a)});
  task(LaneId::reduce, {read(a)});
  EXPECT_THAT(waits(0), IsEmpty());
  EXPECT_THAT(waits(1), IsEmpty());
}

TEST_F(WaitsTest, OverlappingMemoryCausesWaits) {
  const int a = buffer(0), same = buffer(0), other = buffer(kBytes);
  task(LaneId::gather, {write(a)});
  task(LaneId::compute, {write(same)});
  task(LaneId::reduce, {write(other)});
  EXPECT_THAT(waits(1), ElementsAre(0));
  EXPECT_THAT(waits(2), IsEmpty());
}

// Only the touched parts of a buffer count.
TEST_F(WaitsTest, DisjointPartsOfABufferAreIndependent) {
  const int a = buffer(0);
  const auto part = [&](std::size_t begin, std::size_t bytes) {
    Use use = write(a);
    use.offset = begin;
    use.bytes = bytes;
    return use;
  };
  task(LaneId::gather, {part(0, 1024)});
  task(LaneId::compute, {part(1024, 1024)});
  task(LaneId::reduce, {part(512, 1024)});
  EXPECT_THAT(waits(1), ElementsAre(2)) << "the previous step's last task, and not the first one of this step";
  EXPECT_THAT(waits(2), ElementsAre(0, 1));
}

TEST_F(WaitsTest, ALaneNeedsNoWaitsForItself) {
  const int a = buffer(0);
  task(LaneId::compute, {write(a)});
  task(LaneId::compute, {write(a)});
  EXPECT_THAT(waits(0), IsEmpty());
  EXPECT_THAT(waits(1), IsEmpty());
}

TEST_F(WaitsTest, ImpliedWaitsAreOmitted) {
  const int a = buffer(0), b = buffer(kBytes);
  task(LaneId::gather, {write(a)});
  task(LaneId::compute, {read(a), write(b)});
  task(LaneId::reduce, {read(a), read(b)});
  EXPECT_THAT(waits(2), ElementsAre(1)) << "task 1 has waited for task 0";
}

TEST_F(WaitsTest, AWriteWaitsForTheReadersOfEveryLane) {
  const int a = buffer(0);
  task(LaneId::gather, {write(a)});
  task(LaneId::compute, {read(a)});
  task(LaneId::reduce, {read(a)});
  task(LaneId::gather, {write(a)});
  EXPECT_THAT(waits(3), ElementsAre(1, 2));
}

// Tasks of one condition may run without the task between them, so their order must hold then, too.
TEST_F(WaitsTest, TasksThatMayRunAloneWaitForEachOther) {
  const int a = buffer(0);
  task(LaneId::checkpoint, {write(a)}, When::checkpoint);
  task(LaneId::compute, {write(a)});
  task(LaneId::reduce, {read(a)}, When::checkpoint);
  EXPECT_THAT(waits(2), ElementsAre(0, 1));
}

// A step may lack the task in the middle, and the order must hold then, too.
TEST_F(WaitsTest, NoTaskReliesOnAnOptionalTask) {
  const int a = buffer(0), b = buffer(kBytes);
  task(LaneId::gather, {write(a)});
  task(LaneId::checkpoint, {read(a), write(b)}, When::checkpoint);
  task(LaneId::reduce, {read(a), read(b)});
  EXPECT_THAT(waits(2), ElementsAre(0, 1));
}

}  // namespace
}  // namespace strata::runtime

#include "runtime/tasks/save.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/runtime/tasks/task_run.h"

namespace strata::runtime {
namespace {

using device::DType;

// The places of unit 2's state, and the staging memory of a checkpoint.
struct Saving {
  explicit Saving(DType dtype) : c(make_case(small(false), 1, 1, 0, dtype, false, false, 1, {})), run(c.request) {
    Home& home = run.draft.plan.homes[2];
    home.parameters = run.add_buffer(4096);
    if (dtype != DType::fp32) home.master = run.add_buffer(4096);
    home.moment1 = run.add_buffer(4096, Tier::host);
    staging = run.add_buffer(4096, Tier::host);
  }
  const Home& home() const { return run.draft.home(2); }

  PlanCase c;
  TaskRun run;
  int staging;
};

// The task writes only its staging memory. Meanwhile updates may not run, but forward and backward may.
TEST(SaveTask, ReadsTheUnitsState) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const bool second_moment : {false, true}) {
      Saving s(dtype);
      if (second_moment) s.run.draft.plan.homes[2].moment2 = s.run.add_buffer(4096);
      Save{2, {s.staging, false}}.add(s.run.draft);
      const Task& task = s.run.task();
      EXPECT_EQ(task.kind, TaskKind::save);
      EXPECT_EQ(task.lane, LaneId::checkpoint);
      EXPECT_EQ(task.when, When::checkpoint);
      EXPECT_EQ(task.unit, 2);
      EXPECT_EQ(task.uses.size(), second_moment ? 4u : 3u);
      EXPECT_EQ(use_of(task, Role::staging).buffer, s.staging);
      EXPECT_EQ(use_of(task, Role::staging).access, Access::update);
      EXPECT_EQ(use_of(task, Role::master).buffer, dtype == DType::fp32 ? s.home().parameters : s.home().master)
          << "in fp32 the parameters are the master";
      EXPECT_EQ(use_of(task, Role::moment1).buffer, s.home().moment1);
      EXPECT_EQ(task.buffer(Role::moment2), s.home().moment2);
      for (const Use& use : task.uses) EXPECT_EQ(use.access == Access::read, use.role != Role::staging);
    }
}

TEST(SaveTask, TheFirstStartsTheStaging) {
  Saving s(DType::bf16);
  Save{2, {s.staging, true}}.add(s.run.draft);
  EXPECT_EQ(use_of(s.run.task(), Role::staging).access, Access::write);
}

TEST(PublishTask, ComesAfterAllThatWentThroughTheStaging) {
  Saving s(DType::bf16);
  Publish{s.staging}.add(s.run.draft);
  const Task& task = s.run.task();
  EXPECT_EQ(task.kind, TaskKind::publish);
  EXPECT_EQ(task.lane, LaneId::checkpoint);
  EXPECT_EQ(task.when, When::checkpoint);
  EXPECT_EQ(task.unit, -1);
  ASSERT_EQ(task.uses.size(), 1u);
  EXPECT_EQ(use_of(task, Role::staging).access, Access::update);
}

class Recorder final : public Saver {
 public:
  void save(device::Lane&, std::size_t unit) override { told.push_back("save " + std::to_string(unit)); }
  void publish(device::Lane&) override { told.emplace_back("publish"); }

  std::vector<std::string> told;
};

TEST(SaveTask, TellsTheSaverOfTheCheckpoint) {
  Saving s(DType::bf16);
  Save{2, {s.staging, true}}.add(s.run.draft);
  Publish{s.staging}.add(s.run.draft);
  s.run.place();
  Recorder saver;
  s.run.site->saver = &saver;
  s.run.run(0);
  s.run.run(1);
  EXPECT_EQ(saver.told, (std::vector<std::string>{"save 2", "publish"}));
}

}  // namespace
}  // namespace strata::runtime

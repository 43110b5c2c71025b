// Tests which ranks of a group (watch.h) wait for which rank, and in which group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/control/watch/watch.h"
#include "tests/runtime/plan_case.h"

namespace strata::launcher::control {
namespace {

using runtime::LaneId;

RankView rank_at(int rank, LaneId lane, int task, double age) {
  RankView out;
  out.rank = rank;
  out.phase = runtime::Phase::training;
  out.step = 119;
  out.phase_age = 1e6;
  out.pid = 1;
  out.lanes[static_cast<std::size_t>(lane)] = {{120, task, true}, age, 0};
  return out;
}

// Ranks 0 to 3 gather as one group, ranks 4 and 5 as another, and all of them reduce together.
TEST(WatchGroups, NamesTheGroupThatWaitsForARank) {
  TaskNames names;
  names.stages[0] = {{"forward block 3", LaneId::compute, false},
                     {"reduce block 3", LaneId::reduce, true},
                     {"gather block 4", LaneId::gather, true, 0}};
  names.group_sets = {{{0, 1, 2, 3}, {4, 5}}};
  Watch watch({30, 60, 600}, {{{"n1", {0, 1, 2, 3}}, {"n2", {4, 5}}}, {0, 0, 0, 0, 1, 1}}, 0);
  watch.set_names(names);
  const std::vector<RankView> ranks = {rank_at(0, LaneId::gather, 2, 69), rank_at(1, LaneId::compute, 0, 70),
                                       rank_at(2, LaneId::gather, 2, 69), rank_at(3, LaneId::gather, 2, 69),
                                       rank_at(4, LaneId::reduce, 1, 69), rank_at(5, LaneId::reduce, 1, 69)};
  watch.heard(0, std::span(ranks).first(4), 100);
  watch.heard(1, std::span(ranks).last(2), 100);
  const auto found = watch.look(100);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(
      found[0].text,
      "rank 1 on n1 has been in 'forward block 3' of step 120 for 70 s; ranks 0, 2, 3 wait for it in 'gather block 4' "
      "(group of ranks 0 to 3), and 2 more ranks for them");
}

// Ranks 0 and 1 are stage 0 of a pipeline, 2 and 3 stage 1, whose tasks have other numbers.
TEST(WatchGroups, NamesTheTasksOfAStage) {
  TaskNames names;
  names.stages = {{{"forward block 0", LaneId::compute, false}, {"receive block 0", LaneId::stage_backward, true, 0}},
                  {{"gather block 4", LaneId::gather, true}, {"forward block 4", LaneId::compute, false}}};
  names.mesh = runtime::Mesh{4, {}, 4, 1, 2};
  names.group_sets = {{{0, 2}, {1, 3}}};
  Watch watch({30, 60, 600}, {{{"n1", {0, 1, 2, 3}}}, {0, 0, 0, 0}}, 0);
  watch.set_names(names);
  const std::vector<RankView> ranks = {rank_at(0, LaneId::stage_backward, 1, 69),
                                       rank_at(1, LaneId::stage_backward, 1, 69), rank_at(2, LaneId::gather, 0, 69),
                                       rank_at(3, LaneId::compute, 1, 70)};
  watch.heard(0, ranks, 100);
  const auto found = watch.look(100);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].text,
            "rank 3 (data 1, stage 1) on n1 has been in 'forward block 4' of step 120 for 70 s; rank 1 waits for it in "
            "'receive "
            "block 0' (group of ranks 1, 3), and 2 more ranks for them");
  const auto lost = watch.look(131);
  ASSERT_FALSE(lost.empty());
  EXPECT_THAT(lost[0].text, testing::StartsWith("node n1 (ranks 0 to 3: data 0 to 1, stage 0 to 1) is lost"));
}

// A plan that shards parameters over groups of two ranks, and reduces among all ranks.
TEST(WatchGroups, MatchThePlansGroups) {
  runtime::PlanCase c = runtime::make_case(runtime::small(false), 4, 1, 3, device::DType::bf16, false, false, 1, {});
  c.request.placement.parameters.group = 2;
  const runtime::StepPlan plan = runtime::make_plan(c.request);
  const TaskNames names(plan, *c.model, *comm::solo_world());
  int gathers = 0, reductions = 0;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const std::vector<int>* group = names.group(static_cast<int>(t), 3);
    if (plan.tasks[t].kind == runtime::TaskKind::gather) {
      ++gathers;
      ASSERT_NE(group, nullptr);
      EXPECT_THAT(*group, testing::ElementsAre(2, 3));
    } else if (plan.tasks[t].kind == runtime::TaskKind::reduce) {
      ++reductions;
      EXPECT_EQ(group, nullptr);
    }
  }
  EXPECT_GT(gathers, 0);
  EXPECT_GT(reductions, 0);
}

}  // namespace
}  // namespace strata::launcher::control

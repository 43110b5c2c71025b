#include "launcher/control/watch/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::launcher::control {
namespace {

using runtime::LaneId;
using runtime::Phase;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = Watch::Finding::Kind;

// The tasks of a step are forward (0), reduce (1), gather (2) and write (3). Ranks 0 to 5 are on nodes of two ranks.
TaskNames names() {
  TaskNames out;
  out.stages[0] = {{"forward block 3", LaneId::compute, false},
                   {"reduce block 3", LaneId::reduce, true},
                   {"gather block 4", LaneId::gather, true},
                   {"write block 7", LaneId::disk_write, false}};
  return out;
}
NodeMap three_nodes() {
  return {{{"n1", {0, 1}}, {"n2", {2, 3}}, {"n3", {4, 5}}}, {0, 0, 1, 1, 2, 2}};
}

RankView at(int rank, LaneId lane, int task, double age, std::int64_t step = 120, bool running = true) {
  RankView out;
  out.rank = rank;
  out.phase = Phase::training;
  out.step = running ? step - 1 : step;
  out.phase_age = 1e6;
  out.pid = 1;
  out.lanes[static_cast<std::size_t>(lane)] = {{step, task, running}, age, 0};
  return out;
}

class WatchTest : public testing::Test {
 protected:
  WatchTest() { watch_.set_names(names()); }

  // All nodes report at `now`.
  void tell(const std::vector<RankView>& ranks, double now) {
    for (int node = 0; node < 3; ++node)
      watch_.heard(node, std::span(ranks).subspan(2 * static_cast<std::size_t>(node), 2), now);
  }
  std::vector<std::string> look(double now, Kind kind) {
    std::vector<std::string> out;
    for (const Watch::Finding& finding : watch_.look(now))
      if (finding.kind == kind) out.push_back(finding.text);
    return out;
  }

  Watch watch_{{30, 60, 600}, three_nodes(), 0};
};

std::vector<RankView> all_reducing(double age) {
  std::vector<RankView> out;
  for (int rank = 0; rank < 6; ++rank) out.push_back(at(rank, LaneId::reduce, 1, age));
  return out;
}

TEST_F(WatchTest, NamesASilentNodeItsRanksAndItsLastTask) {
  tell(all_reducing(0), 100);
  std::vector<RankView> ranks = all_reducing(0);
  for (double now = 101; now < 130; ++now) {
    watch_.heard(0, std::span(ranks).subspan(0, 2), now);
    watch_.heard(1, std::span(ranks).subspan(2, 2), now);
    EXPECT_THAT(watch_.look(now), IsEmpty()) << now;
  }
  const auto found = watch_.look(130);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::lost);
  EXPECT_EQ(found[0].rank, 4);
  EXPECT_EQ(
      found[0].text,
      "node n3 (ranks 4 to 5) is lost: not heard from for 30 s, so it is down, or its network is; last in 'reduce "
      "block 3' of step 120");
  EXPECT_THAT(look(131, Kind::lost), IsEmpty()) << "once";
}

TEST_F(WatchTest, ANodeThatComesBackInTimeIsNotLost) {
  tell(all_reducing(0), 100);
  EXPECT_THAT(look(129, Kind::lost), IsEmpty());
  tell(all_reducing(0), 129.5);
  EXPECT_THAT(look(131, Kind::lost), IsEmpty());
}

TEST_F(WatchTest, IgnoresANodeThatDoesNotExist) {
  tell(all_reducing(0), 100);
  for (const int node : {-1, 3, 4, 1 << 20}) {
    watch_.heard(node, all_reducing(0), 129);
    watch_.left(node);
    watch_.broke(node, 101);
  }
  EXPECT_THAT(look(104, Kind::lost), IsEmpty());
  EXPECT_THAT(look(131, Kind::lost), testing::Not(IsEmpty())) << "the existing nodes have reported nothing since";
}

TEST_F(WatchTest, ANodeThatLeftIsNotLost) {
  tell(all_reducing(0), 100);
  watch_.left(2);
  watch_.heard(0, {}, 135);
  watch_.heard(1, {}, 135);
  EXPECT_THAT(look(140, Kind::lost), IsEmpty());
}

TEST_F(WatchTest, ASuddenlyBrokenStreamMeansAnEndedProcess) {
  tell(all_reducing(0), 100);
  watch_.broke(1, 100.2);
  EXPECT_THAT(look(102, Kind::lost), IsEmpty()) << "it may come back";
  EXPECT_THAT(look(103.3, Kind::lost),
              ElementsAre("node n2 (ranks 2 to 3) is lost: its processes have ended without a message; last in 'reduce "
                          "block 3' of step 120"));
}

TEST_F(WatchTest, WaitsForAStreamThatBrokeAfterSilenceOrReconnected) {
  tell(all_reducing(0), 100);
  watch_.broke(1, 112);  // the link is down: TCP gave up
  EXPECT_THAT(look(116, Kind::lost), IsEmpty());
  tell(all_reducing(0), 120);
  watch_.broke(2, 120.5);
  tell(all_reducing(0), 121);
  EXPECT_THAT(look(125, Kind::lost), IsEmpty());
}

TEST_F(WatchTest, NamesTheRankThatOthersWaitFor) {
  std::vector<RankView> ranks = all_reducing(61);
  ranks[5] = at(5, LaneId::disk_write, 3, 61);
  tell(ranks, 100);
  EXPECT_THAT(look(100, Kind::warning),
              ElementsAre("rank 5 on n3 has been in 'write block 7' of step 120 for 61 s; 5 ranks wait for it"));
  EXPECT_THAT(look(101, Kind::warning), IsEmpty()) << "once per place";
}

TEST_F(WatchTest, NamesTheSlowestRankIfAllWaitInCollectives) {
  std::vector<RankView> ranks = all_reducing(70);
  ranks[3] = at(3, LaneId::reduce, 1, 70, 119, false);  // finished the previous step, and did nothing since
  tell(ranks, 100);
  EXPECT_THAT(
      look(100, Kind::warning),
      ElementsAre("rank 3 on n2 has been in what follows 'reduce block 3' of step 119 for 70 s; 5 ranks wait for it"));
}

TEST_F(WatchTest, NamesAStoppedProcess) {
  std::vector<RankView> ranks = all_reducing(65);
  ranks[2].beat_age = 65;
  tell(ranks, 100);
  EXPECT_THAT(
      look(100, Kind::warning),
      ElementsAre("rank 2 on n2 has been in 'reduce block 3' of step 120 for 65 s (its process does not run); 5 ranks "
                  "wait for it"));
}

// These ranks began to wait a moment later, so not as long ago as a warning requires.
TEST_F(WatchTest, CountsRanksThatBeganToWaitSlightlyLater) {
  std::vector<RankView> ranks = all_reducing(59.8);
  ranks[2].beat_age = 60;
  ranks[4].lanes[static_cast<std::size_t>(LaneId::reduce)].age = 1;  // this rank has just begun
  tell(ranks, 100);
  EXPECT_THAT(
      look(100, Kind::warning),
      ElementsAre("rank 2 on n2 has been in 'reduce block 3' of step 120 for 60 s (its process does not run); 4 ranks "
                  "wait for it"));
}

TEST_F(WatchTest, ATaskMayTakeTenTimesItsUsualTime) {
  std::vector<RankView> ranks = all_reducing(0);
  ranks[1] = at(1, LaneId::compute, 0, 100);
  ranks[1].lanes[static_cast<std::size_t>(LaneId::compute)].typical = 11;
  tell(ranks, 100);
  EXPECT_THAT(look(100, Kind::warning), IsEmpty());
  ranks[1].lanes[static_cast<std::size_t>(LaneId::compute)].age = 111;
  tell(ranks, 111);
  EXPECT_THAT(look(111, Kind::warning),
              ElementsAre("rank 1 on n1 has been in 'forward block 3' of step 120 for 111 s"));
}

// A device's lanes do not report task times, and while a graph runs, no lane of the plan does.
TEST_F(WatchTest, ADevicesStepMayTakeTenTimesTheUsualTime) {
  for (const bool running : {true, false}) {
    Watch watch({30, 60, 600}, three_nodes(), 0);
    watch.set_names(names());
    const auto found_at = [&](double age) {
      std::vector<RankView> ranks;
      for (int rank = 0; rank < 6; ++rank) {
        ranks.push_back(at(rank, LaneId::compute, 0, age, 120, running));
        ranks.back().typical_step = 100;
      }
      for (int node = 0; node < 3; ++node)
        watch.heard(node, std::span(ranks).subspan(2 * static_cast<std::size_t>(node), 2), age);
      return watch.look(age);
    };
    for (double age = 0; age < 1000; ++age) ASSERT_THAT(found_at(age), IsEmpty()) << age;
    const auto found = found_at(1000);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].kind, Kind::stuck);
  }
}

// The ranks are between two steps, after a long evaluation.
TEST_F(WatchTest, TimeBetweenStepsDoesNotCountForATask) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    ranks.push_back(at(rank, LaneId::reduce, 1, 5000, 120, false));
    ranks.back().phase_age = 2;
  }
  tell(ranks, 100);
  EXPECT_THAT(watch_.look(100), IsEmpty());
}

// The other ranks are in the next step and wait for rank 0, which is still writing the evaluation's results.
TEST_F(WatchTest, NamesTheRankThatHasNotFinishedAnEvaluation) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 6; ++rank) ranks.push_back(at(rank, LaneId::gather, 2, 61, 121));
  ranks[0].phase = Phase::evaluating;
  ranks[0].lanes[static_cast<std::size_t>(LaneId::gather)] = {{120, 2, false}, 100, 0};
  for (const double now : {0.0, 61.0}) tell(ranks, now);
  EXPECT_THAT(look(61, Kind::warning),
              ElementsAre("rank 0 on n1 has been in 'evaluating' for 61 s; 5 ranks wait for it"));
}

// Rank 0 writes the step's report, and the other ranks are in the following evaluation.
TEST_F(WatchTest, NamesTheRankThatHasNotBegunAnEvaluation) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    ranks.push_back(at(rank, LaneId::gather, 2, 61, 120, false));
    if (rank > 0) ranks.back().phase = Phase::evaluating;
  }
  tell(ranks, 0);
  tell(ranks, 61);
  EXPECT_THAT(
      look(61, Kind::warning),
      ElementsAre("rank 0 on n1 has been in what follows 'gather block 4' of step 120 for 61 s; 5 ranks wait for it"));
}

TEST_F(WatchTest, WatchesTheOthersWhenANodeHasLeft) {
  std::vector<RankView> ranks = all_reducing(0);
  tell(ranks, 0);
  watch_.left(2);
  for (double now = 1; now < 70; ++now) {
    for (RankView& rank : ranks) rank.lanes[static_cast<std::size_t>(LaneId::reduce)].age = now;
    ranks[1] = at(1, LaneId::disk_write, 3, now);
    watch_.heard(0, std::span(ranks).subspan(0, 2), now);
    watch_.heard(1, std::span(ranks).subspan(2, 2), now);
    const auto found = watch_.look(now);
    ASSERT_EQ(found.size(), now == 60 ? 1U : 0U) << now;
    if (!found.empty()) {
      EXPECT_EQ(found[0].text, "rank 1 on n1 has been in 'write block 7' of step 120 for 60 s; 3 ranks wait for it");
    }
  }
}

TEST_F(WatchTest, WithoutWarningsAStuckRankIsStillFound) {
  Watch watch({30, 0, 600}, three_nodes(), 0);
  watch.set_names(names());
  for (const double age : {598.0, 599.0, 600.0}) {
    std::vector<RankView> ranks = all_reducing(age);
    for (int node = 0; node < 3; ++node)
      watch.heard(node, std::span(ranks).subspan(2 * static_cast<std::size_t>(node), 2), age);
    const auto found = watch.look(age);
    ASSERT_EQ(found.size(), age < 600 ? 0U : 1U) << age;
    if (!found.empty()) {
      EXPECT_EQ(found[0].kind, Kind::stuck);
    }
  }
}

TEST_F(WatchTest, ReportsThatARankContinues) {
  std::vector<RankView> ranks = all_reducing(61);
  ranks[5] = at(5, LaneId::disk_write, 3, 61);
  tell(ranks, 100);
  EXPECT_EQ(look(100, Kind::warning).size(), 1U);
  tell(all_reducing(0.1), 101);
  EXPECT_THAT(look(101, Kind::recovered), ElementsAre("rank 5 on n3 continues: it is in 'reduce block 3' of step 120"));
}

TEST_F(WatchTest, ARankThatStallsForTooLongIsStuck) {
  std::vector<RankView> ranks = all_reducing(599);
  ranks[5] = at(5, LaneId::disk_write, 3, 599);
  tell(ranks, 1000);
  EXPECT_THAT(look(1000, Kind::stuck), IsEmpty());
  ranks[5].lanes[static_cast<std::size_t>(LaneId::disk_write)].age = 600;
  tell(ranks, 1001);
  EXPECT_THAT(look(1001, Kind::stuck),
              ElementsAre("rank 5 on n3 has been in 'write block 7' of step 120 for 600 s; 5 ranks wait for it"));
}

TEST_F(WatchTest, AnAdvancingPhaseIsNotAStall) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    RankView& view = ranks.emplace_back();
    view.rank = rank;
    view.phase = Phase::loading;
    view.pid = 1;
  }
  for (double now = 0; now <= 700; now += 10) {
    for (RankView& rank : ranks) {
      rank.phase_age = now;
      if (rank.rank != 4) rank.counter = static_cast<std::uint64_t>(now);
    }
    tell(ranks, now);
    const auto warnings = look(now, Kind::warning);
    if (now == 60) {
      EXPECT_THAT(warnings, ElementsAre("rank 4 on n3 has been in 'loading weights' for 60 s"));
    } else {
      EXPECT_THAT(warnings, IsEmpty()) << now;
    }
    EXPECT_EQ(look(now, Kind::stuck).size(), now >= 600 ? 1U : 0U) << now;
  }
}

TEST_F(WatchTest, AProcessThatWasStoppedBlamesNobody) {
  tell(all_reducing(0), 100);
  watch_.resume(1000);
  EXPECT_THAT(watch_.look(1000.1), IsEmpty());
  EXPECT_EQ(look(1030, Kind::lost).size(), 1U);
}

TEST_F(WatchTest, ANodeThatNeverConnectedIsReportedAndNotLost) {
  std::vector<RankView> ranks = all_reducing(0);
  for (double now = 0; now < 1000; ++now) {
    watch_.heard(0, std::span(ranks).subspan(0, 2), now);
    const auto found = watch_.look(now);
    ASSERT_EQ(found.size(), now == 30 ? 1U : 0U) << now << ": a rank that was never seen has not stalled";
    if (found.empty()) continue;
    EXPECT_EQ(found[0].kind, Kind::unknown);
    EXPECT_THAT(found[0].text, testing::HasSubstr("n2, n3 never reached rank 0 on n1"));
  }
}

// An interruption has delayed the run. One sentence says so for all nodes that come back together.
TEST_F(WatchTest, ReportsNodesThatComeBack) {
  const std::vector<RankView> ranks = all_reducing(0);
  const auto hear = [&](int node, double now) {
    watch_.heard(node, std::span(ranks).subspan(2 * static_cast<std::size_t>(node), 2), now);
  };
  for (const int node : {0, 1, 2}) hear(node, 0);
  hear(0, 6);
  EXPECT_THAT(watch_.look(6), IsEmpty()) << "no network lies between rank 0 and its own node";
  hear(1, 7.5), hear(2, 7.5);
  const auto found = watch_.look(7.5);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, Kind::recovered);
  EXPECT_EQ(found[0].text,
            "n2 (ranks 2 to 3), n3 (ranks 4 to 5) are heard from again after a silence of 7 s; the run continues");
  for (const int node : {0, 1, 2}) hear(node, 10.9);
  EXPECT_THAT(watch_.look(10.9), IsEmpty()) << "less than 5 s is not reported";
}

TEST_F(WatchTest, AProcessThatWasStoppedReportsNoReturn) {
  const std::vector<RankView> ranks = all_reducing(0);
  for (const double now : {0.0, 60.0}) {
    if (now > 0) watch_.resume(now);
    for (const int node : {0, 1, 2})
      watch_.heard(node, std::span(ranks).subspan(2 * static_cast<std::size_t>(node), 2), now);
    EXPECT_THAT(watch_.look(now), IsEmpty());
  }
}

TEST_F(WatchTest, ZeroMeansNever) {
  Watch never({0, 0, 0}, three_nodes(), 0);
  never.set_names(names());
  const std::vector<RankView> ranks = all_reducing(1e6);
  never.heard(0, std::span(ranks).first(2), 0);
  EXPECT_THAT(never.look(1e6), IsEmpty());
}

TEST_F(WatchTest, IgnoresReportsAboutAnotherNodesRanks) {
  tell(all_reducing(0), 100);
  RankView other = at(0, LaneId::compute, 0, 5, 999);
  watch_.heard(2, std::span(&other, 1), 101);
  watch_.heard(7, std::span(&other, 1), 101);
  watch_.heard(-1, std::span(&other, 1), 101);
  other.rank = 77;
  watch_.heard(2, std::span(&other, 1), 101);
  EXPECT_EQ(watch_.ranks()[0].step, 119);
}

TEST_F(WatchTest, NamesTheSlowestRankByTheMedian) {
  std::vector<RankView> ranks = all_reducing(0);
  for (RankView& rank : ranks) rank.compute = 1;
  ranks[2].compute = 1.04;
  tell(ranks, 1);
  EXPECT_EQ(watch_.slowest(), -1);
  ranks[2].compute = 1.06;
  tell(ranks, 2);
  EXPECT_EQ(watch_.slowest(), 2);
}

TEST(RanksTextTest, ListsRanksBriefly) {
  EXPECT_EQ(ranks_text(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector{4, 5}), "ranks 4 to 5");
  EXPECT_EQ(ranks_text(std::vector{8, 9, 10, 11}), "ranks 8 to 11");
  EXPECT_EQ(ranks_text(std::vector{0, 2, 4}), "ranks 0, 2, 4");
}

}  // namespace
}  // namespace strata::launcher::control

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/dist/launch.h"
#include "tests/scratch_folder.h"

namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

using strata::tests::Outcome;

Outcome mpirun(int ranks, const std::string& mode, const std::string& transport) {
  return strata::tests::run(strata::tests::under_mpirun(ranks, {strata::tests::kCommDist, mode, transport}));
}
// On a busy machine, the survivors of a lost rank may need more than the second that mpirun gives them to report.
Outcome mpirun_waits(int ranks, const std::string& mode, const std::string& transport) {
  const strata::tests::ScratchFolder folder;
  return strata::tests::run(
      strata::tests::under_mpirun(ranks, {strata::tests::kCommDist, mode, transport},
                                  "\"$@\"; code=$?; " + strata::tests::end_together(folder.path().string())));
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Mpirun, Ranks, testing::Values(1, 2, 4));

TEST_P(Ranks, CollectivesOverSharedMemory) {
  const Outcome outcome = mpirun(GetParam(), "check", "automatic");
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.output, HasSubstr("checked mpi (shared memory) on " + std::to_string(GetParam()) + " ranks"));
}

TEST_P(Ranks, CollectivesOverMessages) {
  const Outcome outcome = mpirun(GetParam(), "check", "messages");
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.output, HasSubstr("checked mpi (messages) on " + std::to_string(GetParam()) + " ranks"));
}

// Nodes of two ranks each, or three such nodes and a fourth with one rank.
TEST(Nodes, CollectivesOverNodes) {
  for (const int ranks : {4, 6, 7}) {
    const Outcome outcome = mpirun(ranks, "check", "nodes");
    EXPECT_EQ(outcome.code, 0) << outcome.all();
    EXPECT_THAT(outcome.output, HasSubstr("checked mpi (messages) on " + std::to_string(ranks) + " ranks"));
  }
}

// The number of ranks, out of four, that print the failure.
std::size_t speakers(const Outcome& outcome) {
  std::size_t count = 0;
  for (const int rank : {0, 1, 2, 3})
    count += outcome.errors.find("rank " + std::to_string(rank) + " speaks") != std::string::npos;
  return count;
}

class Failures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mpirun, Failures, testing::Values("shared_memory", "messages"));

// Every survivor ends within 10 s and reports which rank failed first.
void expect_survivors_name(const Outcome& outcome, const std::string& cause) {
  for (const char* rank : {"0", "2", "3"})
    EXPECT_THAT(outcome.errors,
                ContainsRegex("rank " + std::string(rank) + " of 4 ended after [0-9]\\.[0-9] s: " + cause));
  EXPECT_NE(outcome.code, 0);
}

TEST_P(Failures, KilledRankIsNamedAndEndsTheOthers) {
  const Outcome outcome = mpirun_waits(4, "kill", GetParam());
  expect_survivors_name(outcome, "rank 1 .pid [0-9]+ on [^ ]+ ended without a message");
  EXPECT_EQ(speakers(outcome), 1U) << outcome.all();
}

TEST_P(Failures, FirstCauseReachesAllRanks) {
  const Outcome outcome = mpirun_waits(4, "fail", GetParam());
  expect_survivors_name(outcome, "rank 1 failed: the disk is full");
  EXPECT_EQ(outcome.code, 1) << outcome.all();
}

TEST_P(Failures, RankThatEndsEarlyIsNamed) {
  const Outcome outcome = mpirun_waits(4, "leave", GetParam());
  expect_survivors_name(outcome, "rank 1 ended while rank [023] waited for it");
}

// Exactly one rank prints the failure, whether ranks fail at the same moment or one fails long after another's notice.
TEST_P(Failures, OneOfTwoFailingRanksPrints) {
  for (const char* mode : {"both", "late", "late in a lane"}) {
    const Outcome outcome = mpirun_waits(4, mode, GetParam());
    EXPECT_NE(outcome.code, 0);
    for (const int rank : {0, 1, 2, 3}) {
      EXPECT_THAT(outcome.errors, ContainsRegex("rank " + std::to_string(rank) +
                                                " (speaks|is silent): (rank [12] failed: )?the disk is full"));
    }
    EXPECT_EQ(speakers(outcome), 1U) << mode << outcome.all();
    if (std::string(mode) != "both") {
      EXPECT_THAT(outcome.errors, HasSubstr("rank 2 speaks: "));
    }
  }
}

// The data that has arrived is not used, and buffers for the rest stay until the end.
TEST_P(Failures, AMessageArrivesInPart) {
  const Outcome fails = mpirun_waits(3, "fails within a message", GetParam());
  EXPECT_EQ(fails.code, 1) << fails.all();
  EXPECT_THAT(fails.errors, ContainsRegex("rank 1 speaks: (rank 1 failed: )?the disk is full within a message"));
  for (const char* rank : {"0", "2"})
    EXPECT_THAT(fails.errors, HasSubstr(std::string("rank ") + rank + " is silent: rank 1 failed"));
  const Outcome dies = mpirun_waits(3, "killed within a message", GetParam());
  EXPECT_NE(dies.code, 0);
  EXPECT_THAT(dies.errors,
              ContainsRegex("rank [02] speaks at once: rank 1 .pid [0-9]+ on [^ ]+ ended without a message"))
      << dies.all();
  EXPECT_EQ(speakers(dies), 1U) << dies.all();
}

// Data and leave notices travel separately. A rank that has left is not a failure while its last data is on its way.
TEST(Failures, ALeaveNoticeOvertakesTheLastData) {
  const Outcome outcome = mpirun(3, "leaves early", "messages");
  EXPECT_EQ(outcome.code, 0) << outcome.all();
  EXPECT_THAT(outcome.output, HasSubstr("all left"));
}

TEST(Failures, ARankOfAnotherNodeThatNeverFinishesIsNamed) {
  const Outcome outcome = mpirun(2, "hang", "messages");
  EXPECT_THAT(outcome.errors,
              HasSubstr("rank 1 has not ended 2 s after rank 0: it hangs, or was lost without a message"));
  EXPECT_NE(outcome.code, 0);
}

TEST(Connect, RefusesSoloRanksThatWouldOverwriteEachOther) {
  const Outcome outcome = mpirun(2, "solo", "automatic");
  EXPECT_EQ(outcome.code, 2) << outcome.all();
  EXPECT_THAT(outcome.errors, HasSubstr("mpirun started 2 ranks"));
}

}  // namespace

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

struct Outcome {
  int status;
  std::string output;  // of all ranks and of mpirun
};

Outcome mpirun(int ranks, const std::string& mode, const std::string& transport) {
  // Containers run as root; there may be fewer cores than ranks, and other tests on them. mpirun would kill the
  // survivors of a lost rank after a second, which a busy machine may need. No more than this either: Open MPI 4.1
  // sleeps it out, twice, also when all ranks have ended long ago.
  const std::string command = "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " MPIRUN
                              " --oversubscribe --bind-to none --mca odls_base_sigkill_timeout 2 -n " +
                              std::to_string(ranks) + " " COMM_DIST " " + mode + " " + transport + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Outcome outcome{0, {}};
  char buffer[4096];
  while (const std::size_t size = fread(buffer, 1, sizeof buffer, pipe)) outcome.output.append(buffer, size);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Mpirun, Ranks, testing::Values(1, 2, 4));

TEST_P(Ranks, CollectivesOverSharedMemory) {
  const Outcome outcome = mpirun(GetParam(), "check", "automatic");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("checked mpi (shared memory) on " + std::to_string(GetParam()) + " ranks"));
}

TEST_P(Ranks, CollectivesOverMessages) {
  const Outcome outcome = mpirun(GetParam(), "check", "messages");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("checked mpi (messages) on " + std::to_string(GetParam()) + " ranks"));
}

class Failures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Mpirun, Failures, testing::Values("shared_memory", "messages"));

// Every survivor ends within 10 s and says who was first.
void expect_survivors_name(const Outcome& outcome, const std::string& cause) {
  for (const char* rank : {"0", "2", "3"})
    EXPECT_THAT(outcome.output,
                ContainsRegex("rank " + std::string(rank) + " of 4 ended after [0-9]\\.[0-9] s: " + cause));
  EXPECT_NE(outcome.status, 0);
}

TEST_P(Failures, KilledRankIsNamedAndEndsTheOthers) {
  expect_survivors_name(mpirun(4, "kill", GetParam()), "rank 1 .pid [0-9]+ on this node. ended without a word");
}

TEST_P(Failures, FirstCauseReachesAllRanks) {
  const Outcome outcome = mpirun(4, "fail", GetParam());
  expect_survivors_name(outcome, "rank 1 failed: the disk is full");
  EXPECT_EQ(outcome.status, 1) << outcome.output;
}

TEST_P(Failures, RankThatEndsEarlyIsNamed) {
  const Outcome outcome = mpirun(4, "leave", GetParam());
  expect_survivors_name(outcome, "rank 1 ended while rank [023] waited for it");
}

TEST(Connect, RefusesSoloRanksThatWouldOverwriteEachOther) {
  const Outcome outcome = mpirun(2, "solo", "automatic");
  EXPECT_EQ(outcome.status, 2) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("mpirun started 2 ranks"));
}

}  // namespace

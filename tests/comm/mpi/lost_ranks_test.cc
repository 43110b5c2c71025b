// Ranks that are lost without a message: how a ControlLine detects them, and which rank prints the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tests/comm/mpi/line_end.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A process that has ended, as a neighbour with rank `number`.
Process ended_process(int number) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return {number, child, 1};
}

TEST(LostRanks, ADeadNeighbourIsReportedToAllRanks) {
  fake_mpi::run_well(3, [&](int number) {
    LineEnd rank;
    if (number == 1) return;
    if (number == 0) {
      rank.session.neighbours = {ended_process(1)};
    } else {
      rank.session.neighbours.clear();  // it is on another node
    }
    rank.poll_until_failed();
    const Failure failure = rank.line.failure();
    expect_failure(failure, 1, failure.cause, Exit::failed, false);
    EXPECT_THAT(failure.cause, HasSubstr("ended without a message"));
    EXPECT_FALSE(rank.line.leave_together());
  });
  EXPECT_EQ(fake_mpi::calls(0, "Isend"), 1U) << "to rank 2 alone";
}

// Its leave notice may arrive between the check for messages and the check of its process.
TEST(LostRanks, ANeighbourThatLeftAtTheLastMomentIsNotDead) {
  for (const bool at_the_end : {false, true}) {
    fake_mpi::run_well(
        2,
        [&](int number) {
          LineEnd rank;
          if (number == 0) {
            wait_for_notices(1, 1);
            rank.session.neighbours = {ended_process(1)};
            if (!at_the_end) {
              EXPECT_EQ(LineEnd::cause_of([&] { rank.line.check(); }), "");
            }
          }
          EXPECT_TRUE(rank.line.leave_together());
        },
        {}, [] { fake_mpi::delay_notices(1, 0, 1); });
  }
}

// A departed rank's last data may still be on their way. What has not arrived after three seconds never will.
TEST(LostRanks, RanksThatWaitForADepartedRankReportIt) {
  Gate done(2);
  fake_mpi::run_well(2, [&](int number) {
    LineEnd rank;
    if (number == 1) {
      EXPECT_FALSE(rank.line.leave_together()) << "rank 0 fails";
      done.come();
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < start + 4s) rank.line.check();
    EXPECT_EQ(LineEnd::cause_of([&] { rank.line.poll(); }), "") << "its wait has just begun";
    const auto begin = std::chrono::steady_clock::now();
    rank.poll_until_failed();
    EXPECT_GT(std::chrono::steady_clock::now() - begin, 2500ms);
    expect_failure(rank.line.failure(), 1, "rank 1 ended while rank 0 waited for it: its own message says why",
                   Exit::failed, false);
    EXPECT_FALSE(rank.line.leave_together());
    done.come();
  });
}

// The process of a rank on another node is not visible here.
TEST(LostRanks, ARankOfAnotherNodeThatDoesNotLeaveIsNamed) {
  Gate said(3);
  fake_mpi::run_well(
      3,
      [&](int number) {
        LineEnd rank(1s);
        if (number == 2) {
          said.come();
          return;
        }
        EXPECT_FALSE(rank.line.leave_together());
        expect_failure(rank.line.failure(), 2,
                       "rank 2 has not ended 1 s after rank " + std::to_string(number) +
                           ": it hangs, or was lost without a message",
                       Exit::failed, false);
        said.come();
      },
      {0, 0, 1},
      [] {
        fake_mpi::delay_notices(0, 1, fake_mpi::kAll);
        fake_mpi::delay_notices(1, 0, fake_mpi::kAll);
      });
}

// Two ranks of its node notice the loss before they hear of each other. One of them prints it at once, and the rank on
// another node is silent. In the second round the dead rank has printed its own failure.
TEST(LostRanks, TheFirstRankThatNoticesALossPrintsIt) {
  for (const bool lost : {true, false}) {
    std::atomic<int> printed{0};
    Gate failed(3);
    fake_mpi::run_well(
        4,
        [&](int number) {
          LineEnd rank;
          rank.line.when_lost([&](const Failure& failure) {
            EXPECT_EQ(failure.rank, 1);
            EXPECT_NE(number, 3);
            EXPECT_THAT(failure.cause, HasSubstr("ended without a message"));
            EXPECT_EQ(fake_mpi::calls(number, "Isend"), 0U) << "before MPI can end this process";
            ++printed;
          });
          if (number == 1) {
            if (!lost) rank.line.report_failure("the disk is full", Exit::failed);
            return;
          }
          if (!lost) wait_for_notices(1, 3);
          if (number != 3) rank.session.neighbours = {ended_process(1)};
          if (number == 3) rank.session.neighbours.clear();
          rank.poll_until_failed();
          if (lost && number != 3) {
            EXPECT_FALSE(rank.line.failure().self_reported);
          }
          failed.come();
          EXPECT_EQ(printed, lost ? 1 : 0);
          EXPECT_FALSE(rank.line.leave_together());
        },
        {0, 0, 0, 1},
        [&] {
          for (const int from : {0, 2})
            for (const int to : {0, 2}) fake_mpi::delay_notices(from, to, fake_mpi::kAll);
        });
  }
}

// Nodes cannot agree in time: one rank of each prints what it missed.
TEST(LostRanks, OneRankPerNodePrintsALoss) {
  std::atomic<int> printed[2] = {0, 0};
  Gate gave_up(4), done(5);
  fake_mpi::run_well(5,
                     [&](int number) {
                       LineEnd rank(2s);
                       if (number == 4) {
                         for (const int other : {0, 1, 2, 3}) wait_for_notices(other, 4);
                         std::this_thread::sleep_for(500ms);  // the leave notices have arrived; what follows does not
                         for (const int from : {0, 1, 2, 3})
                           for (const int to : {0, 1, 2, 3}) fake_mpi::delay_notices(from, to, fake_mpi::kAll);
                       } else {
                         rank.line.when_lost([&](const Failure& failure) {
                           EXPECT_EQ(failure.cause, "rank 4 has not ended 2 s after rank " + std::to_string(number) +
                                                        ": it hangs, or was lost without a message");
                           ++printed[number / 2];
                         });
                         EXPECT_FALSE(rank.line.leave_together());
                         gave_up.come();
                         for (const std::atomic<int>& one : printed) EXPECT_EQ(one, 1);
                       }
                       done.come();
                     },
                     {0, 0, 1, 1, 2});
}

}  // namespace
}  // namespace strata::comm

#include "comm/mpi/control_line.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/comm/mpi/line_end.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;

TEST(ControlLine, ANoticeEndsTheWaitsOfAllOthers) {
  Gate polled(3);
  fake_mpi::run_well(3, [&](int number) {
    LineEnd rank;
    EXPECT_EQ(LineEnd::cause_of([&] { rank.line.poll(); }), "");
    polled.come();
    if (number == 1) rank.line.report_failure("the disk is full", Exit::does_not_fit);
    EXPECT_GE(rank.poll_until_failed(), 0);
    expect_failure(rank.line.failure(), 1, number == 1 ? "the disk is full" : "rank 1 failed: the disk is full",
                   Exit::does_not_fit);
    EXPECT_FALSE(rank.line.leave_together());
  });
  EXPECT_EQ(fake_mpi::calls(1, "Isend"), 2U) << "to each other rank, once";
  EXPECT_EQ(fake_mpi::calls(0, "Isend") + fake_mpi::calls(2, "Isend"), 0U);
}

// The wait continues while the notice is on its way, and ends when it arrives.
TEST(ControlLine, ALateNoticeEndsAWaitInProgress) {
  Gate failed(2);
  fake_mpi::run_well(
      2,
      [&](int number) {
        LineEnd rank;
        if (number == 1) rank.line.report_failure("the disk is full", Exit::failed);
        failed.come();
        if (number == 0) {
          EXPECT_EQ(rank.poll_until_failed(), 25);
        }
        EXPECT_FALSE(rank.line.leave_together());
      },
      {}, [] { fake_mpi::delay_notices(1, 0, 25); });
}

// No rank is waiting. A check outside of waits finds the notice, and so does the end of the run.
TEST(ControlLine, ALateNoticeIsFoundOutsideOfWaitsAndAtTheEnd) {
  for (const bool at_the_end : {false, true}) {
    Gate failed(2);
    fake_mpi::run_well(
        2,
        [&](int number) {
          LineEnd rank;
          if (number == 1) rank.line.report_failure("the disk is full", Exit::failed);
          failed.come();
          if (number == 1) return;
          if (!at_the_end) {
            for (int looks = 0; looks < 3; ++looks) EXPECT_EQ(LineEnd::cause_of([&] { rank.line.check(); }), "");
            EXPECT_EQ(LineEnd::cause_of([&] { rank.line.check(); }), "rank 1 failed: the disk is full");
          }
          EXPECT_FALSE(rank.line.leave_together());
          expect_failure(rank.line.failure(), 1, "rank 1 failed: the disk is full");
        },
        {}, [] { fake_mpi::delay_notices(1, 0, 3); });
  }
}

// Two ranks fail before they have heard of each other. If the lower one's notice comes soon, its failure counts,
// otherwise the rank's own. Later notices change nothing, because a rank has then said why.
TEST(ControlLine, ALowerRanksSimultaneousFailureCountsIfItsNoticeComesSoon) {
  for (const bool soon : {true, false}) {
    Gate both(2);
    fake_mpi::run_well(
        3,
        [&](int number) {
          LineEnd rank;
          if (number > 0) {
            rank.line.report_failure("the disk of " + std::to_string(number) + " is full", Exit::failed);
            both.come();
            const std::string first = "rank 1 failed: the disk of 1 is full";
            if (number == 1) {
              expect_failure(rank.line.failure(), 1, "the disk of 1 is full");
            } else if (soon) {
              expect_failure(rank.line.failure(), 1, first);
            } else {
              expect_failure(rank.line.failure(), 2, "the disk of 2 is full");
              fake_mpi::delay_notices(1, 2, 0);
              expect_failure(rank.line.failure(), 2, "the disk of 2 is full");
            }
          }
          rank.poll_until_failed();
          EXPECT_FALSE(rank.line.leave_together());
        },
        {},
        [&] {
          fake_mpi::delay_notices(1, 2, soon ? 10 : fake_mpi::kAll);
          fake_mpi::delay_notices(2, 1, 10);
        });
  }
}

// The order in which notices arrive does not matter.
TEST(ControlLine, TheNoticeOfTheLowestRankCounts) {
  Gate all(3);
  fake_mpi::run_well(
      3,
      [&](int number) {
        LineEnd rank;
        rank.line.report_failure("the disk is full", Exit::failed);
        all.come();
        if (number == 2) expect_failure(rank.line.failure(), 0, "rank 0 failed: the disk is full");
        EXPECT_FALSE(rank.line.leave_together());
      },
      {},
      [] {
        for (const int from : {0, 1, 2})
          for (const int to : {0, 1, 2}) fake_mpi::delay_notices(from, to, from == 0 ? 3 : 10);
      });
}

// A failure whose notice had already arrived here, even unread, was first, so this rank is silent. `in_a_lane`: the
// rank's own work has set the token by then.
TEST(ControlLine, ARankThatFailsAfterANoticeIsSilent) {
  for (const bool in_a_lane : {false, true}) {
    Gate failed(2);
    fake_mpi::run_well(2, [&](int number) {
      LineEnd rank;
      if (number == 1) rank.line.report_failure("the disk is full", Exit::failed);
      failed.come();
      if (number == 0) {
        if (in_a_lane) rank.token.set({0, "the network is down", Exit::usage});
        rank.line.report_failure("the network is down", Exit::usage);
      }
      expect_failure(rank.line.failure(), 1, number == 1 ? "the disk is full" : "rank 1 failed: the disk is full");
      EXPECT_FALSE(rank.line.leave_together());
    });
    EXPECT_EQ(fake_mpi::calls(0, "Isend"), 0U);
  }
}

TEST(ControlLine, AFailureIsReportedOnceAndALongCauseIsTruncated) {
  const std::string cause(3'000, 'x');
  fake_mpi::run_well(2, [&](int number) {
    LineEnd rank;
    if (number == 1) {
      rank.line.report_failure(cause, Exit::failed);
      rank.line.report_failure("another", Exit::usage);
      EXPECT_EQ(LineEnd::cause_of([&] { rank.line.poll(); }), cause);
    } else {
      rank.poll_until_failed();
      expect_failure(rank.line.failure(), 1, ("rank 1 failed: " + cause).substr(0, 1023));
    }
    EXPECT_FALSE(rank.line.leave_together());
  });
  EXPECT_EQ(fake_mpi::calls(1, "Isend"), 1U);
}

// Otherwise the others would wait forever. They need no notice of a failure after a leave notice.
TEST(ControlLine, ANoticeThatCannotBeSentEndsAllRanks) {
  for (const bool fails : {true, false}) {
    fake_mpi::run_well(2, [&](int number) {
      LineEnd rank(1s);
      if (number == 0) {
        fake_mpi::fail_calls(0, "Isend");
        if (fails)
          rank.line.report_failure("the disk is full", Exit::failed);
        else
          rank.session.neighbours.clear();
      }
      if (number == 1 && fails) rank.token.set({0, "mpirun ended it", Exit::failed});
      if (number == 1) rank.session.neighbours.clear();
      EXPECT_EQ(rank.line.leave_together(), number == 0 && !fails);
    });
    EXPECT_EQ(fake_mpi::calls(0, "Abort"), fails ? 1U : 0U);
  }
}

// The cause may be MPI itself.
TEST(ControlLine, AFailureIsReportedEvenIfMpiFails) {
  fake_mpi::run_well(2, [&](int number) {
    LineEnd rank;
    if (number == 1) {
      fake_mpi::fail_calls(1, "Test");
      rank.line.report_failure("MPI_Testsome failed", Exit::failed);
      return;
    }
    rank.poll_until_failed();
    expect_failure(rank.line.failure(), 1, "rank 1 failed: MPI_Testsome failed");
  });
}

// All others wait for a leave notice that takes long to arrive.
TEST(ControlLine, TheEndWaitsForALateLeaveNotice) {
  fake_mpi::run_well(
      3,
      [&](int number) {
        LineEnd rank(1s);
        if (number == 1) std::this_thread::sleep_for(1500ms);  // longer than the timeout with other nodes
        EXPECT_TRUE(rank.line.leave_together());
        EXPECT_EQ(fake_mpi::calls(1, "Isend"), 2U);
        expect_failure(rank.line.failure(), -1, "");
      },
      {}, [] { fake_mpi::delay_notices(1, 0, 200); });
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(fake_mpi::open_requests(rank), 0U);
    EXPECT_EQ(fake_mpi::open_communicators(rank), 0U);
    EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U);
  }
}

// Requests in flight may point to memory that has been freed.
TEST(ControlLine, MpiIsNotCalledAfterAFailure) {
  fake_mpi::run_well(2, [](int number) {
    std::size_t before = 0;
    {
      LineEnd rank;
      rank.session.abandon();
      if (number == 1) rank.line.report_failure("the disk is full", Exit::failed);
      rank.poll_until_failed();
      before = fake_mpi::calls(number, "Test") + fake_mpi::calls(number, "Testall");
    }
    EXPECT_EQ(fake_mpi::calls(number, "Test") + fake_mpi::calls(number, "Testall"), before);
  });
  for (const int rank : {0, 1})
    for (const char* call : {"Cancel", "Waitall", "Comm_free", "Finalize"})
      EXPECT_EQ(fake_mpi::calls(rank, call), call == std::string("Comm_free") ? 1U : 0U) << call;  // the node's, before
}

}  // namespace
}  // namespace strata::comm

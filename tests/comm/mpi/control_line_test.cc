#include "comm/mpi/control_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "tests/comm/mpi/fake.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// A rank with its end of the line.
struct Rank {
  explicit Rank(std::chrono::seconds patience = 10min) : line(session, token, patience) {}
  // The cause with which a call ends; "" if it ends without one.
  template <typename F>
  static std::string cause_of(F&& f) {
    try {
      f();
    } catch (const Aborted& e) {
      return e.what();
    }
    return "";
  }
  // Polls until the run has failed. Returns the number of earlier polls.
  int poll_until_failed() {
    for (int polls = 0;; ++polls)
      if (!cause_of([&] { line.poll(); }).empty()) return polls;
  }

  MpiSession session;
  AbortToken token;
  ControlLine line;
};

void expect_failure(const Failure& failure, int rank, const std::string& cause, Exit code = Exit::failed,
                    bool self_reported = true) {
  EXPECT_EQ(failure.rank, rank);
  EXPECT_EQ(failure.cause, cause);
  EXPECT_EQ(failure.code, code);
  EXPECT_EQ(failure.self_reported, self_reported);
}

// Ranks wait here for each other, outside of MPI.
class Gate {
 public:
  explicit Gate(int ranks) : left_(ranks) {}
  void come() {
    --left_;
    while (left_.load() > 0) std::this_thread::sleep_for(1ms);
  }

 private:
  std::atomic<int> left_;
};

// Waits until the rank has sent this many notices.
void wait_for_notices(int rank, std::size_t count) {
  while (fake_mpi::calls(rank, "Isend") < count) std::this_thread::sleep_for(1ms);
}

TEST(ControlLine, ANoticeEndsTheWaitsOfAllOthers) {
  Gate polled(3);
  fake_mpi::run_well(3, [&](int number) {
    Rank rank;
    EXPECT_EQ(Rank::cause_of([&] { rank.line.poll(); }), "");
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
TEST(ControlLine, ALateNoticeEndsAWaitThatHasBegun) {
  Gate failed(2);
  fake_mpi::run_well(
      2,
      [&](int number) {
        Rank rank;
        if (number == 1) rank.line.report_failure("the disk is full", Exit::failed);
        failed.come();
        if (number == 0) {
          EXPECT_EQ(rank.poll_until_failed(), 25);
        }
        EXPECT_FALSE(rank.line.leave_together());
      },
      {}, [] { fake_mpi::delay_notices(1, 0, 25); });
}

// Nobody is waiting. A look outside of waits finds the notice, and so does the end.
TEST(ControlLine, ALateNoticeIsFoundOutsideOfWaitsAndAtTheEnd) {
  for (const bool at_the_end : {false, true}) {
    Gate failed(2);
    fake_mpi::run_well(
        2,
        [&](int number) {
          Rank rank;
          if (number == 1) rank.line.report_failure("the disk is full", Exit::failed);
          failed.come();
          if (number == 1) return;
          if (!at_the_end) {
            for (int looks = 0; looks < 3; ++looks) EXPECT_EQ(Rank::cause_of([&] { rank.line.look_after(); }), "");
            EXPECT_EQ(Rank::cause_of([&] { rank.line.look_after(); }), "rank 1 failed: the disk is full");
          }
          EXPECT_FALSE(rank.line.leave_together());
          expect_failure(rank.line.failure(), 1, "rank 1 failed: the disk is full");
        },
        {}, [] { fake_mpi::delay_notices(1, 0, 3); });
  }
}

// Two ranks fail before they have heard of each other. If the lower one's notice comes soon, its failure counts,
// otherwise the rank's own. Later notices change nothing, because a rank has then said why.
TEST(ControlLine, TheLowestOfRanksThatFailAtOnceCounts) {
  for (const bool soon : {true, false}) {
    Gate both(2);
    fake_mpi::run_well(
        3,
        [&](int number) {
          Rank rank;
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
TEST(ControlLine, TheLowestOfSeveralNoticesCounts) {
  Gate all(3);
  fake_mpi::run_well(
      3,
      [&](int number) {
        Rank rank;
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
TEST(ControlLine, ARankThatFailsAfterANoticeHasComeIsSilent) {
  for (const bool in_a_lane : {false, true}) {
    Gate failed(2);
    fake_mpi::run_well(2, [&](int number) {
      Rank rank;
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

TEST(ControlLine, AFailureIsToldOnceAndItsLongCauseIsCut) {
  const std::string cause(3'000, 'x');
  fake_mpi::run_well(2, [&](int number) {
    Rank rank;
    if (number == 1) {
      rank.line.report_failure(cause, Exit::failed);
      rank.line.report_failure("another", Exit::usage);
      EXPECT_EQ(Rank::cause_of([&] { rank.line.poll(); }), cause);
    } else {
      rank.poll_until_failed();
      expect_failure(rank.line.failure(), 1, ("rank 1 failed: " + cause).substr(0, 1023));
    }
    EXPECT_FALSE(rank.line.leave_together());
  });
  EXPECT_EQ(fake_mpi::calls(1, "Isend"), 1U);
}

// Otherwise the others would wait for ever. They need no notice of a farewell.
TEST(ControlLine, ANoticeThatCannotBeSentEndsAllRanks) {
  for (const bool fails : {true, false}) {
    fake_mpi::run_well(2, [&](int number) {
      Rank rank(1s);
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

// MPI itself may be the cause.
TEST(ControlLine, AFailureIsToldThoughMpiFails) {
  fake_mpi::run_well(2, [&](int number) {
    Rank rank;
    if (number == 1) {
      fake_mpi::fail_calls(1, "Test");
      rank.line.report_failure("MPI_Testsome failed", Exit::failed);
      return;
    }
    rank.poll_until_failed();
    expect_failure(rank.line.failure(), 1, "rank 1 failed: MPI_Testsome failed");
  });
}

// A process that has ended: a neighbour as rank `number`.
Process ended_process(int number) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return {number, child, 1};
}

TEST(ControlLine, ADeadNeighbourIsNamedToAllOthers) {
  fake_mpi::run_well(3, [&](int number) {
    Rank rank;
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

// Its farewell may come between the look for messages and the look at its process.
TEST(ControlLine, ANeighbourThatSaidFarewellInTheLastMomentIsNotDead) {
  for (const bool at_the_end : {false, true}) {
    fake_mpi::run_well(
        2,
        [&](int number) {
          Rank rank;
          if (number == 0) {
            wait_for_notices(1, 1);
            rank.session.neighbours = {ended_process(1)};
            if (!at_the_end) {
              EXPECT_EQ(Rank::cause_of([&] { rank.line.look_after(); }), "");
            }
          }
          EXPECT_TRUE(rank.line.leave_together());
        },
        {}, [] { fake_mpi::delay_notices(1, 0, 1); });
  }
}

// A departed rank's last data may still be on their way. What has not arrived after three seconds never will.
TEST(ControlLine, ARankThatHasLeftIsMissedByThoseThatWaitForIt) {
  Gate done(2);
  fake_mpi::run_well(2, [&](int number) {
    Rank rank;
    if (number == 1) {
      EXPECT_FALSE(rank.line.leave_together()) << "rank 0 fails";
      done.come();
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < start + 4s) rank.line.look_after();
    EXPECT_EQ(Rank::cause_of([&] { rank.line.poll(); }), "") << "its wait has just begun";
    const auto begin = std::chrono::steady_clock::now();
    rank.poll_until_failed();
    EXPECT_GT(std::chrono::steady_clock::now() - begin, 2500ms);
    expect_failure(rank.line.failure(), 1, "rank 1 ended while rank 0 waited for it: its own message says why",
                   Exit::failed, false);
    EXPECT_FALSE(rank.line.leave_together());
    done.come();
  });
}

// All others wait for a farewell that is long on its way.
TEST(ControlLine, TheEndWaitsForALateFarewell) {
  fake_mpi::run_well(
      3,
      [&](int number) {
        Rank rank(1s);
        if (number == 1) std::this_thread::sleep_for(1500ms);  // longer than the patience with other nodes
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

// Nobody here sees the process of a rank on another node.
TEST(ControlLine, ARankOfAnotherNodeThatDoesNotLeaveIsNamed) {
  Gate said(3);
  fake_mpi::run_well(
      3,
      [&](int number) {
        Rank rank(1s);
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

// Requests in flight may point at memory that is gone.
TEST(ControlLine, MpiIsNotTouchedAfterAFailure) {
  fake_mpi::run_well(2, [](int number) {
    std::size_t before = 0;
    {
      Rank rank;
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

TEST(ControlLine, TheLowestRankThatIsLeftOfANode) {
  fake_mpi::run_well(4,
                     [](int number) {
                       Rank rank;
                       EXPECT_EQ(rank.line.lowest_left(), number % 2 == 0);
                       if (number == 1) {
                         rank.session.neighbours = {ended_process(0)};
                         EXPECT_TRUE(rank.line.lowest_left());
                       }
                     },
                     {0, 0, 1, 1});
}

}  // namespace
}  // namespace strata::comm

// How the watch, the communicators and their destructors react if NCCL fails, hangs, or is destroyed while in use. The
// fake ends the process when the real library would crash, and counts calls in which it would wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "device/cuda/launch.h"
#include "tests/comm/nccl/fake.h"
#include "tests/comm/nccl/ranks.h"

namespace strata::comm {
namespace {

using device::Arena;
using device::Lane;
using fake_nccl::Fault;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kShort = 200ms, kLongTimeout = 60000ms;
constexpr ShardedRange kRange{1000, 0, 2000};

class NcclFailure : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake_nccl::alive(), 0);
    EXPECT_EQ(fake_nccl::stuck(), 0);
    EXPECT_LT(Clock::now() - begin_, 10s);
    fake_nccl::reset();
  }

 private:
  const Clock::time_point begin_ = Clock::now();
};

// A lane with its communicator and the buffers of a gather.
struct Gather {
  Gather(Rank& rank, const char* name)
      : arena(3000, rank.device), lane(rank.lane(name)), communicator(rank.open(lane)) {}
  void issue() { communicator->all_gather(kRange, arena.data(), arena.at(1000)); }

  Arena arena;
  Lane lane;
  std::unique_ptr<Communicator> communicator;
};

// The message of the first rank's exception.
std::string failure(std::chrono::milliseconds timeout, const std::function<void(Rank&)>& f) {
  try {
    run_ranks(2, timeout, f);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void wait_for_abort(Rank& rank) {
  while (!rank.world.abort_token().is_set()) std::this_thread::sleep_for(1ms);
  rank.world.abort_token().throw_if_set();
}

TEST_F(NcclFailure, AnAsynchronousErrorEndsTheRunWithItsText) {
  fake_nccl::set(1, Fault::kernel_fails, 2);
  const std::string text = failure(kLongTimeout, [](Rank& rank) {
    Gather gather(rank, "gather");
    for (int i = 0; i < 5; ++i) gather.issue();
    gather.lane.synchronize();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("lane gather"), HasSubstr("remote process exited (the link is cut)")));
}

TEST_F(NcclFailure, AnErrorBetweenTwoCallsIsNoticedByTheWatch) {
  fake_nccl::set(1, Fault::kernel_fails);
  const std::string text = failure(kLongTimeout, [](Rank& rank) {
    Gather gather(rank, "gather");
    if (rank.world.rank() == 1) gather.issue();
    wait_for_abort(rank);
  });
  EXPECT_THAT(text, HasSubstr("the link is cut"));
}

TEST_F(NcclFailure, ACollectiveThatHangsEndsAllRanks) {
  fake_nccl::set(1, Fault::kernel_hangs, 3);
  const std::string text = failure(kShort, [](Rank& rank) {
    Gather gather(rank, "gather");
    for (int i = 0; i < 5; ++i) gather.issue();
    gather.lane.synchronize();
  });
  EXPECT_THAT(text, HasSubstr("no collective on lane gather has completed for 0.2 s"));
}

// A thread that waits for room in a stream blocks other CUDA calls, so the watch must make none.
TEST_F(NcclFailure, AHangIsNoticedWhileTheIssuerWaitsForQueueSpace) {
  const std::string text = failure(kShort, [](Rank& rank) {
    Gather gather(rank, "gather");
    if (rank.world.rank() == 1) wait_for_abort(rank);
    gather.issue();
    for (int i = 0; i < 3000; ++i) device::cuda::copy(gather.lane, gather.arena.data(), gather.arena.at(1000), 8);
    gather.lane.synchronize();
  });
  EXPECT_THAT(text, HasSubstr("has completed for 0.2 s"));
}

// The time limit applies to each collective, not to all collectives that were issued together.
TEST_F(NcclFailure, ManyQueuedCollectivesAreNotAHang) {
  constexpr auto kTimeout = 500ms;
  const auto slow = [](void*) { std::this_thread::sleep_for(120ms); };
  const std::string text = failure(kTimeout, [&](Rank& rank) {
    Gather gather(rank, "gather");
    for (int i = 0; i < 8; ++i) {
      cudaLaunchHostFunc(device::cuda::stream_of(gather.lane), slow, nullptr);
      gather.issue();
    }
    gather.lane.synchronize();
    std::this_thread::sleep_for(3 * kTimeout / 2);  // with none under way
    rank.world.abort_token().throw_if_set();
  });
  EXPECT_EQ(text, "");
}

TEST_F(NcclFailure, ARankThatUnwindsDoesNotWaitForTheOthers) {
  EXPECT_EQ(failure(kLongTimeout,
                    [](Rank& rank) {
                      Gather gather(rank, "gather");
                      gather.issue();
                      gather.lane.synchronize();
                      if (rank.world.rank() == 1) throw std::runtime_error("its disk is gone");
                      gather.issue();
                      gather.lane.synchronize();
                    }),
            "its disk is gone");
}

TEST_F(NcclFailure, ConnectingThatNeverEndsIsNoticed) {
  fake_nccl::set(1, Fault::connect_hangs);
  EXPECT_THAT(failure(kShort, [](Rank& rank) { Gather gather(rank, "gather"); }),
              HasSubstr("NCCL on lane gather could not reach the other ranks within 0.2 s"));
}

TEST_F(NcclFailure, AnAbortWhileItConnectsLeavesNothingBehind) {
  fake_nccl::set(1, Fault::connect_hangs);
  const std::string text = failure(kLongTimeout, [](Rank& rank) {
    const std::jthread other([&] {
      std::this_thread::sleep_for(20ms);
      rank.world.abort_token().set({rank.world.rank(), "told to stop", Exit::failed});
    });
    Gather gather(rank, "gather");
  });
  EXPECT_THAT(text, HasSubstr("told to stop"));
}

TEST_F(NcclFailure, NoticesThatOtherRanksDoNotLeave) {
  fake_nccl::set(1, Fault::finalize_hangs);
  const std::string text = failure(kShort, [](Rank& rank) {
    { const Gather gather(rank, "gather"); }
    rank.world.abort_token().throw_if_set();
  });
  EXPECT_THAT(text, HasSubstr("could not reach the other ranks within 0.2 s"));
}

TEST_F(NcclFailure, TwoHungCommunicatorsAreAbortedTogether) {
  const std::string text = failure(kShort, [](Rank& rank) {
    Gather gather(rank, "gather"), reduce(rank, "reduce");
    if (rank.world.rank() == 1) wait_for_abort(rank);
    gather.issue();
    reduce.issue();
    reduce.lane.synchronize();
  });
  EXPECT_THAT(text, HasSubstr("has completed for 0.2 s"));
}

// This happens before the watch's first check.
TEST_F(NcclFailure, ADestructorAbortsTwoHungCommunicatorsTogether) {
  const std::string text = failure(kLongTimeout, [](Rank& rank) {
    std::optional<Gather> gather(std::in_place, rank, "gather"), reduce(std::in_place, rank, "reduce");
    if (rank.world.rank() == 1) wait_for_abort(rank);
    gather->issue();
    reduce->issue();
    std::this_thread::sleep_for(5ms);
    rank.world.abort_token().set({0, "told to stop", Exit::failed});
    reduce.reset();
    gather.reset();
    rank.world.abort_token().throw_if_set();
  });
  EXPECT_THAT(text, HasSubstr("told to stop"));
}

TEST_F(NcclFailure, NothingIsUsedAfterTheAbort) {
  fake_nccl::slow_down(300);
  for (int round = 0; round < 12; ++round) {
    const std::string text = failure(kLongTimeout, [&](Rank& rank) {
      const Arena in(2000, rank.device), staging(2000, rank.device);
      Gather gather(rank, "gather");
      std::vector<const std::byte*> pieces(2);
      const std::jthread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2 + round % 4));
        if (rank.world.rank() == round % 2)
          rank.world.abort_token().set({rank.world.rank(), "told to stop", Exit::failed});
        if (round % 3 == 0) rank.watch.abort_all();  // also where the token says nothing
      });
      for (;;) {
        gather.issue();
        gather.communicator->all_to_all({1000, 500, 1700}, in.data(), staging.data(), pieces.data());
        gather.communicator->exchange(in.data(), 10, staging.data());
        gather.communicator->broadcast(in.data(), 100, 1);
      }
    });
    EXPECT_THAT(text, ::testing::AnyOf(HasSubstr("told to stop"), HasSubstr("NCCL was aborted")));
    ASSERT_EQ(fake_nccl::alive(), 0);
  }
}

TEST_F(NcclFailure, ARefusedCallIsNamedAndLeavesNoGroupOpen) {
  fake_nccl::set(0, Fault::call_is_refused, 2);
  const std::string text = failure(kLongTimeout, [](Rank& rank) {
    Gather gather(rank, "gather");
    for (int i = 0; i < 5; ++i) gather.issue();
    gather.lane.synchronize();
  });
  EXPECT_THAT(text, AllOf(HasSubstr("ncclAllGather of 2000 bytes on lane gather, rank 0 of 2, GPU 0"),
                          HasSubstr("invalid argument (a bad pointer)")));
}

}  // namespace
}  // namespace strata::comm

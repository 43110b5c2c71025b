// How ranks that share memory connect and end. Ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/mpi/mpi.h"
#include "tests/comm/mpi/fake.h"
#include "tests/comm/numbered_bytes.h"
#include "tests/dist/comm_checks.h"
#include "tests/refusing_system.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;
using device::Arena;
using device::Lane;
using testing::Each;
using testing::HasSubstr;

std::unique_ptr<World> shared_memory(std::string& why_not) {
  auto session = std::make_unique<MpiSession>();
  auto world = mpi_shared_memory_world(session, why_not);
  EXPECT_EQ(session == nullptr, world != nullptr) << "the session stays for another world";
  return world;
}

TEST(MpiSharedMemory, RanksOfANodeReadEachOthersArenas) {
  fake_mpi::run_well(3, [](int rank) {
    std::string why_not;
    const auto world = shared_memory(why_not);
    ASSERT_TRUE(world) << why_not;
    EXPECT_EQ(world->describe(), "mpi (shared memory)");
    EXPECT_TRUE(world->nodes().empty());
    constexpr std::size_t kShard = 30'000;
    Lane lane("lane", 1, rank, world->abort_token());
    const auto communicator = world->open(lane);
    for (int number = 0; number < 3; ++number) {  // each arena by itself
      const Arena arena = world->allocate(kShard * 8);
      const ShardedRange range{kShard, 0, kShard * 3};
      for (std::size_t i = 0; i < range.bytes(); ++i) arena.at(0)[i] = value(rank, i, number);
      std::vector<const std::byte*> pieces(3);
      communicator->all_to_all(range, arena.at(0), arena.at(kShard * 4), pieces.data());
      lane.synchronize();
      bool same = true;
      for (std::size_t r = 0; r < 3; ++r)
        for (std::size_t i = 0; i < kShard; ++i)
          same =
              same && pieces[r][i] == value(static_cast<int>(r), static_cast<std::size_t>(rank) * kShard + i, number);
      EXPECT_TRUE(same) << number;
      communicator->release();
      lane.synchronize();
      world->barrier();
    }
    world->leave();
  });
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U);
    EXPECT_EQ(fake_mpi::calls(rank, "Isend") + fake_mpi::calls(rank, "Irecv"), 0U);
  }
}

TEST(MpiSharedMemory, RanksOfDifferentNodesDoNotShareMemory) {
  fake_mpi::run_well(3,
                     [](int) {
                       std::string why_not = "of before";
                       EXPECT_FALSE(shared_memory(why_not));
                       EXPECT_EQ(why_not, "ranks are on different nodes");
                     },
                     {0, 0, 1});
}

// All ranks get the same reason, whichever rank failed.
TEST(MpiSharedMemory, OneRankThatCannotMapDisablesSharing) {
  const std::string error = std::strerror(EACCES);
  const auto refused = [](long call, int of, int ranks) {
    std::vector<std::string> why(static_cast<std::size_t>(ranks));
    fake_mpi::run_well(ranks, [&](int rank) {
      auto session = std::make_unique<MpiSession>();
      const auto meet = [&] { EXPECT_FALSE(mpi_shared_memory_world(session, why[static_cast<std::size_t>(rank)])); };
      if (rank == of)
        tests::with_failing({call}, EACCES, [&] {
          fake_mpi::belong_to(rank);
          meet();
        });
      else
        meet();
      EXPECT_TRUE(session);
    });
    return why;
  };
  EXPECT_THAT(refused(SYS_readlink, 1, 3), Each(HasSubstr("cannot be read (" + error + ")")));
  EXPECT_THAT(refused(SYS_memfd_create, 0, 2), Each(HasSubstr("of shared memory (" + error + ")")))
      << "rank 0's reason, not its consequences";
}

TEST(MpiSharedMemory, AFailureEndsTheWaitsOfAll) {
  fake_mpi::run_well(2, [](int rank) {
    std::string why_not;
    const auto world = shared_memory(why_not);
    ASSERT_TRUE(world) << why_not;
    world->barrier();
    if (rank == 1)
      world->report_failure("the disk is full", Exit::does_not_fit);
    else
      EXPECT_THROW(world->barrier(), Aborted);
    EXPECT_EQ(world->failure().rank, 1);
    EXPECT_EQ(world->failure().code, Exit::does_not_fit);
    EXPECT_EQ(world->prints_failure(), rank == 1);
    EXPECT_THROW(world->leave(), Aborted);
  });
  for (const int rank : {0, 1}) EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U) << "all ranks have left";
}

// A notice arrives after the last collective, when this rank no longer checks for notices. leave() finds it.
TEST(MpiSharedMemory, AFailureAfterTheLastCollectiveIsFoundAtTheEnd) {
  fake_mpi::run_well(2, [](int rank) {
    std::string why_not;
    const auto world = shared_memory(why_not);
    ASSERT_TRUE(world) << why_not;
    world->barrier();
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);  // rank 0 waits in its leave
      world->report_failure("the disk is full", Exit::failed);
    }
    EXPECT_THROW(world->leave(), Aborted);
    EXPECT_EQ(world->failure().rank, 1);
  });
  for (const int rank : {0, 1}) EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U) << "all ranks have left";
}

// MPI_Finalize would wait for a failed rank that never calls it.
TEST(MpiSharedMemory, NoRankFinalizesIfAFailedRankHangs) {
  std::latch ended(2);
  fake_mpi::run_well(2, [&](int rank) {
    std::string why_not;
    const auto world = shared_memory(why_not);
    ASSERT_TRUE(world) << why_not;
    if (rank == 1) {
      world->report_failure("the disk is full", Exit::failed);
      ended.arrive_and_wait();
      return;
    }
    EXPECT_THROW(world->leave(), Aborted);
    ended.arrive_and_wait();
  });
  EXPECT_EQ(fake_mpi::calls(0, "Finalize"), 0U);
}

TEST(MpiSharedMemory, OneRankHasNobodyToShareWith) {
  fake_mpi::run_well(1, [](int) {
    std::string why_not;
    const auto world = shared_memory(why_not);
    ASSERT_TRUE(world) << why_not;
    const Arena arena = world->allocate(10'000);
    arena.at(0)[9'999] = std::byte{1};
    EXPECT_EQ(borrowed_bytes(*world), 0U);
    world->leave();
  });
  EXPECT_EQ(fake_mpi::calls(0, "Finalize"), 1U);
}

}  // namespace
}  // namespace strata::comm

#include "comm/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "tests/comm/mpi/fake.h"
#include "tests/failure.h"

namespace strata::comm {
namespace {

using testing::ElementsAre;

TEST(MpiSession, KnowsTheNodesByTheirLowestRanks) {
  fake_mpi::run_well(5,
                     [&](int rank) {
                       const MpiSession session;
                       EXPECT_EQ(session.rank, rank);
                       EXPECT_EQ(session.size, 5);
                       EXPECT_THAT(session.nodes, ElementsAre(0, 1, 0, 2, 1));
                       EXPECT_EQ(session.node_size, rank == 3 ? 1 : 2);
                       EXPECT_EQ(session.node_rank, rank == 2 || rank == 4 ? 1 : 0);
                       std::vector<int> neighbours;
                       for (const Process& process : session.neighbours) neighbours.push_back(process.rank);
                       const std::vector<std::vector<int>> of_rank = {{2}, {4}, {0}, {}, {1}};
                       EXPECT_EQ(neighbours, of_rank[static_cast<std::size_t>(rank)]);
                     },
                     {7, 3, 7, 1, 3});
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(fake_mpi::open_communicators(rank), 0U);
    EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U);
  }
}

// MPI_Finalize waits for ranks that never call it.
TEST(MpiSession, AnAbandonedSessionDoesNotFinalize) {
  fake_mpi::run_well(2, [](int rank) {
    MpiSession session;
    if (rank == 1) session.abandon();
  });
  EXPECT_EQ(fake_mpi::calls(0, "Finalize"), 1U);
  EXPECT_EQ(fake_mpi::calls(1, "Finalize"), 0U);
}

TEST(MpiSession, RefusesASecondSessionAndASingleThreadedMpi) {
  fake_mpi::run_well(1, [](int) {
    const MpiSession session;
    EXPECT_FAILURE(MpiSession(), Exit::usage, testing::HasSubstr("already initialised"));
  });
  EXPECT_EQ(fake_mpi::calls(0, "Finalize"), 1U) << "by the first";
  fake_mpi::run_well(
      2, [](int) { EXPECT_FAILURE(MpiSession(), Exit::usage, testing::HasSubstr("without MPI_THREAD_MULTIPLE")); }, {},
      [] { fake_mpi::provide_threads(MPI_THREAD_SERIALIZED); });
  for (const int rank : {0, 1}) EXPECT_EQ(fake_mpi::calls(rank, "Finalize"), 1U) << "no other code calls it";
}

TEST(MpiSession, NamesTheCallThatFailed) {
  const auto failing = [](int) -> int { return MPI_ERR_OTHER; };
  EXPECT_FAILURE(STRATA_MPI(failing(3)), Exit::failed,
                 "failing failed: error " + std::to_string(MPI_ERR_OTHER) + " of the fake");
  EXPECT_FAILURE(mpi_failed("MPI_Test(&request, &done)", MPI_ERR_UNKNOWN), Exit::failed, "MPI_Test failed: ");
  EXPECT_FAILURE(STRATA_MPI(MPI_SUCCESS), Exit::done, "");
}

}  // namespace
}  // namespace strata::comm

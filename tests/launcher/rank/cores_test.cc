#include "launcher/rank/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/host/host.h"
#include "base/quantity.h"
#include "tests/comm/run_threads.h"

namespace strata::launcher {
namespace {

// The text that rank 0 prints for these shares and threads of the ranks.
std::string said(const std::vector<CoreShare>& shares, const std::vector<int>& threads) {
  std::string text;
  comm::run_threads(static_cast<int>(shares.size()), [&](comm::World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::string mine = threads_text(shares[rank], threads[rank], world);
    if (world.rank() == 0) text = mine;
  });
  return text;
}

TEST(ThreadsText, DescribesAllRanks) {
  EXPECT_EQ(said({{4, "4 cores that this process may use"}}, {4}),
            "4 threads per rank (4 cores that this process may use)");
  EXPECT_EQ(said({{1, "1 core each"}, {1, "1 core each"}}, {1, 1}), "1 thread per rank (1 core each)");
  EXPECT_EQ(said({{2, "2 cores each"}, {3, "3 cores each"}, {3, "3 cores each"}}, {2, 3, 3}),
            "2 to 3 threads per rank (2 cores each, others 3 cores each)");
}

// The note of rank 0 for these cores and device.threads of the ranks; 0: not set.
std::string oversubscription(const std::vector<int>& cores, const std::vector<std::int64_t>& threads) {
  std::string text;
  comm::run_threads(static_cast<int>(cores.size()), [&](comm::World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto asked = threads[rank] > 0 ? std::optional(threads[rank]) : std::nullopt;
    const std::string mine = oversubscription_text({cores[rank], ""}, asked, world);
    if (world.rank() == 0) text = mine;
  });
  return text;
}

TEST(OversubscriptionText, NotesMoreThreadsThanCores) {
  EXPECT_EQ(oversubscription({2}, {8}),
            "device.threads = 8, but this process has only 2 cores, so its threads wait for each other: set "
            "device.threads = 2");
  EXPECT_EQ(oversubscription({1, 1}, {2, 2}),
            "device.threads = 2, but each rank has only 1 core, so its threads wait for each other: set "
            "device.threads = 1");
  EXPECT_EQ(oversubscription({3, 2, 2}, {3, 3, 3}),
            "device.threads = 3, but rank 1 has only 2 cores, so its threads wait for each other: set "
            "device.threads = 2");
  EXPECT_EQ(oversubscription({2, 2}, {2, 1}), "");
  EXPECT_EQ(oversubscription({1, 1, 1, 1}, {0, 0, 0, 0}), "")
      << "ranks may share cores, but not because of device.threads";
  EXPECT_EQ(oversubscription({1, 1, 1, 1}, {1, 1, 1, 1}), "");
}

TEST(BindCores, ARankWithoutMpirunKeepsTheCoresItMayUse) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) GTEST_SKIP() << "mpirun has bound this process";
  const CoreShare share = bind_cores(0, 1);
  const std::string note = counted(static_cast<std::uint64_t>(share.cores), "core") + " that this process may use";
  if (cpu_quota())
    EXPECT_THAT(share.note, testing::HasSubstr(" that this process may use"));
  else
    EXPECT_EQ(share.note, note);
}

std::vector<int> shared_out(double quota, int cores_each, int ranks) {
  std::vector<int> out;
  for (int rank = 0; rank < ranks; ++rank) out.push_back(within_quota({cores_each, ""}, quota, rank, ranks, "").cores);
  return out;
}

TEST(WithinQuota, IsSharedByTheRanksOfANode) {
  using testing::ElementsAre;
  EXPECT_THAT(shared_out(4, 16, 1), ElementsAre(4));
  EXPECT_THAT(shared_out(4, 8, 2), ElementsAre(2, 2));
  EXPECT_THAT(shared_out(5, 8, 2), ElementsAre(2, 3));
  EXPECT_THAT(shared_out(2.5, 16, 1), ElementsAre(2));
  EXPECT_THAT(shared_out(1.99999, 16, 1), ElementsAre(2));
  EXPECT_THAT(shared_out(0.25, 16, 1), ElementsAre(1)) << "a rank has at least one thread";
  EXPECT_THAT(shared_out(2, 4, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(shared_out(64, 8, 2), ElementsAre(8, 8)) << "no more than the cores";
  EXPECT_THAT(shared_out(1e12, 8, 2), ElementsAre(8, 8));
}

TEST(WithinQuota, IsReportedIfItLimitsThreads) {
  EXPECT_EQ(within_quota({8, "all 8 cores"}, 1.5, 0, 1, "the cgroup's CPU quota").note,
            "all 8 cores; the cgroup's CPU quota allows 1.5 on the node");
  EXPECT_EQ(within_quota({8, "all 8 cores"}, 8, 0, 1, "").note, "all 8 cores");
  EXPECT_EQ(within_quota({8, "all 8 cores"}, {}, 0, 1, "").cores, 8);
}

TEST(SlurmProcessors, AreKnownPerNodeIfAllNodesHaveTheSame) {
  EXPECT_EQ(slurm_processors("16"), 16);
  EXPECT_EQ(slurm_processors("16(x4)"), 16);
  for (const char* differ : {"16,8", "16(x2),8", "", "x", "0"})
    EXPECT_EQ(slurm_processors(differ), std::nullopt) << differ;
}

TEST(CoresHere, AreLimitedByAQuota) {
  const int all = cores_here({});
  EXPECT_GE(all, 1);
  EXPECT_EQ(cores_here(1.5), 1);
  EXPECT_EQ(cores_here(0.1), 1);
  EXPECT_EQ(cores_here(all + 0.5), all);
}

}  // namespace
}  // namespace strata::launcher

#include "launcher/rank/cores.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/counted.h"

namespace strata::launcher {
namespace {

// What rank 0 says if the ranks have these shares and threads.
std::string said(const std::vector<CoreShare>& shares, const std::vector<int>& threads) {
  std::string text;
  comm::run_threads(static_cast<int>(shares.size()), [&](comm::World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::string mine = threads_text(shares[rank], threads[rank], world);
    if (world.rank() == 0) text = mine;
  });
  return text;
}

TEST(ThreadsText, IsOfAllRanks) {
  EXPECT_EQ(said({{4, "4 cores that this process may use"}}, {4}),
            "4 threads per rank (4 cores that this process may use)");
  EXPECT_EQ(said({{1, "1 core each"}, {1, "1 core each"}}, {1, 1}), "1 thread per rank (1 core each)");
  EXPECT_EQ(said({{2, "2 cores each"}, {3, "3 cores each"}, {3, "3 cores each"}}, {2, 3, 3}),
            "2 to 3 threads per rank (2 cores each, others 3 cores each)");
}

TEST(BindCores, ARankWithoutMpirunKeepsTheCoresItMayUse) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) GTEST_SKIP() << "mpirun has bound this process";
  const CoreShare share = bind_cores(0, 1);
  EXPECT_EQ(share.note, counted(static_cast<std::uint64_t>(share.cores), "core") + " that this process may use");
}

}  // namespace
}  // namespace strata::launcher

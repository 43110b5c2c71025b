#include "launcher/rank/run_as_rank.h"

#include <gtest/gtest.h>

namespace strata::launcher {
namespace {

TEST(WithName, AddsCoordinatesToTheRankOfACause) {
  EXPECT_EQ(with_name("rank 5 failed: no space", 5, "rank 5 (data 1, stage 1)"),
            "rank 5 (data 1, stage 1) failed: no space");
  EXPECT_EQ(with_name("rank 5 (pid 7 on nB) ended", 5, "rank 5 (stage 1)"), "rank 5 (stage 1, pid 7 on nB) ended");
  EXPECT_EQ(with_name("rank 5 (pid 7 on nB) ended", 5, "rank 5"), "rank 5 (pid 7 on nB) ended");
  EXPECT_EQ(with_name("rank 51 failed: no space", 5, "rank 5 (stage 1)"), "rank 51 failed: no space");
  EXPECT_EQ(with_name("node n3 is lost", 5, "rank 5 (stage 1)"), "node n3 is lost");
}

}  // namespace
}  // namespace strata::launcher

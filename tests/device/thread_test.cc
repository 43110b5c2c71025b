#include "base/thread.h"

#include <gmock/gmock.h>

#include <vector>

#include "device/cpu/team.h"
#include "device/lane.h"
#include "tests/few_threads.h"

namespace strata::device {
namespace {

constexpr int kMany = 256;

TEST(Thread, RunsItsFunction) {
  int ran = 0;
  start_thread("a thread", [&] { ++ran; }).join();
  EXPECT_EQ(ran, 1);
}

// Workers that were started before the refused one are ended.
TEST(Thread, ARefusedTeamNamesItsNumberOfThreads) {
  EXPECT_REFUSED_THREAD(const cpu::Team team(kMany), "of a lane's 256");
}

TEST(Thread, ARefusedLaneGivesItsName) {
  const auto open_lanes = [] {
    AbortToken abort;
    std::vector<Lane> lanes;
    for (int i = 0; i < kMany; ++i) lanes.emplace_back("upload", 1, 0, abort);
  };
  EXPECT_REFUSED_THREAD(open_lanes(), "the thread of lane upload");
}

}  // namespace
}  // namespace strata::device

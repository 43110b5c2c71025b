#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "comm/mpi/start.h"
#include "tests/failure.h"

namespace strata::comm {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class StartWatchTest : public testing::Test {
 protected:
  StartWatchTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  ~StartWatchTest() override { unsetenv("STRATA_CONNECT_SECONDS"); }
  static void wait_as(int rank, int ranks, std::chrono::milliseconds time) {
    setenv("STRATA_CONNECT_SECONDS", "1", 1);
    {
      const StartWatch watch(rank, ranks);
      std::this_thread::sleep_for(time);
    }
    std::_Exit(0);
  }
};

TEST_F(StartWatchTest, EndsAProcessThatWaitsTooLong) {
  EXPECT_EXIT(wait_as(0, 2, 60s), testing::ExitedWithCode(1), "strata: rank 0 of 2 has waited 1 s for the others");
  EXPECT_EXIT(wait_as(1, 3, 60s), testing::ExitedWithCode(1), "strata: rank 1 of 3 has waited 1 s for the others");
}

TEST_F(StartWatchTest, IgnoresProcessesThatConnectedOrAreAlone) {
  EXPECT_EXIT(wait_as(0, 2, 0ms), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(wait_as(0, 1, 1500ms), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(wait_as(1, 2, 1500ms), testing::ExitedWithCode(0), "") << "the lower rank prints first";
}

TEST_F(StartWatchTest, RefusesAnInvalidNumberOfSeconds) {
  for (const char* text : {"0", "-1", "soon", "5s", "86401", "99999999999"}) {
    setenv("STRATA_CONNECT_SECONDS", text, 1);
    EXPECT_FAILURE(StartWatch(0, 2), Exit::usage, HasSubstr("STRATA_CONNECT_SECONDS is \"" + std::string(text)));
  }
  setenv("STRATA_CONNECT_SECONDS", "", 1);
  EXPECT_FAILURE(StartWatch(0, 2), Exit::done, "");
}

}  // namespace
}  // namespace strata::comm

#include "launcher/launch/node/agent.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/launch/ranks/child.h"

namespace strata::launcher {
namespace {

// Processes of a launch are known by their environment, whatever they are called; others are left alone.
TEST(EndRanks, EndsThoseOfItsRunAlone) {
  const auto nothing = [](std::string_view) {};
  Child ours({{"sleep", "60"}, {"STRATA_LAUNCH=a-run-of-this-test"}}, nothing, nothing);
  Child others({{"sleep", "60"}, {"STRATA_LAUNCH=a-run-of-this-test-too"}}, nothing, nothing);
  // A process has its environment once it runs its program.
  int ended = 0;
  for (int tries = 0; tries < 500 && ended == 0; ++tries) {
    ended = end_ranks("a-run-of-this-test");
    usleep(10000);
  }
  EXPECT_GE(ended, 1);
  for (int tries = 0; tries < 500 && !ours.exit_code(); ++tries) usleep(10000);
  EXPECT_EQ(ours.exit_code(), 128 + SIGKILL);
  EXPECT_EQ(others.exit_code(), std::nullopt);
  EXPECT_EQ(end_ranks(""), 0);
}

}  // namespace
}  // namespace strata::launcher

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
  for (int tries = 0; tries < 500 && !ours.exit_code(); ++tries) {
    EXPECT_TRUE(end_ranks("a-run-of-this-test", 20).empty());
    usleep(10000);
  }
  EXPECT_EQ(ours.exit_code(), 128 + SIGKILL);
  EXPECT_EQ(others.exit_code(), std::nullopt);
  EXPECT_TRUE(end_ranks("", 0).empty());
}

// As a rank that ends while one of its threads waits for a drive: its first thread shows nothing of it any more.
TEST(EndRanks, FindsOneWhoseFirstThreadHasEnded) {
  if (find_program("python3").empty()) GTEST_SKIP() << "python3 is not installed";
  const auto nothing = [](std::string_view) {};
  bool begun = false;
  Child ours(
      {{"python3", "-c",
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('begun', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)"},
       {"STRATA_LAUNCH=a-run-of-threads"}},
      [&](std::string_view) { begun = true; }, nothing);
  LineReader* readers[] = {&ours.out(), &ours.errors()};
  for (int tries = 0; tries < 500 && !begun; ++tries) read_lines(readers, 100);
  ASSERT_TRUE(begun);
  usleep(300'000);
  EXPECT_EQ(ours.exit_code(), std::nullopt);
  EXPECT_TRUE(end_ranks("a-run-of-threads", 20).empty());
  for (int tries = 0; tries < 500 && !ours.exit_code(); ++tries) usleep(10000);
  EXPECT_EQ(ours.exit_code(), 128 + SIGKILL);
}

}  // namespace
}  // namespace strata::launcher

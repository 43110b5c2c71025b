#include "launcher/rank/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace strata::launcher {
namespace {

// Runs in a separate process, because the handlers stay installed. Its exit code says which signals requested a stop.
int signals_that_ask(std::initializer_list<int> signals) {
  int asked = 0, bit = 1;
  for (const int signal : signals) {
    const StopSignal stop;
    if (stop.requested()) return -1;
    std::raise(signal);
    if (stop.requested()) asked |= bit;
    bit *= 2;
  }
  return asked;
}

TEST(StopSignalDeathTest, SignalsRequestAStop) {
  EXPECT_EXIT(std::_Exit(signals_that_ask({SIGTERM, SIGUSR1, SIGHUP, SIGINT})), testing::ExitedWithCode(15), "");
}

TEST(StopSignalDeathTest, SignalsIgnoredByNohupStayIgnored) {
  EXPECT_EXIT(
      {
        for (const int signal : {SIGHUP, SIGINT}) std::signal(signal, SIG_IGN);
        std::_Exit(signals_that_ask({SIGHUP, SIGINT}));
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignalDeathTest, TheSecondInterruptEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace strata::launcher

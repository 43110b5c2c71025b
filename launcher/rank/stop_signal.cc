#include "launcher/rank/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace strata::launcher {
namespace {
volatile std::sig_atomic_t stop_requested = 0;
void request_stop(int) {
  stop_requested = 1;
}
}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  for (const int signal : {SIGTERM, SIGUSR1}) std::signal(signal, request_stop);
  // The terminal is gone; nohup has it ignored.
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, request_stop);
  // Ctrl-C asks once; the second one ends the process where it stands. A shell's background jobs ignore it.
  if (std::signal(SIGINT, SIG_IGN) != SIG_IGN) {
    struct sigaction once {};
    once.sa_handler = request_stop;
    once.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &once, nullptr);
  }
}

// The handler stays: mpirun sends SIGTERM to ranks that are still leaving when the first has left with an error, and
// their own exit code must stand.
StopSignal::~StopSignal() = default;

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace strata::launcher

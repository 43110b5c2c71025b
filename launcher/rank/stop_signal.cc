#include "launcher/rank/stop_signal.h"

#include <algorithm>
#include <csignal>
#include <string>

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
  // SIGHUP means that the terminal is gone. Under nohup it stays ignored.
  if (std::signal(SIGHUP, SIG_IGN) != SIG_IGN) std::signal(SIGHUP, request_stop);
  // The first Ctrl-C requests a stop; the second one ends the process immediately. A shell's background jobs ignore it.
  if (std::signal(SIGINT, SIG_IGN) != SIG_IGN) {
    struct sigaction once {};
    once.sa_handler = request_stop;
    once.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    sigaction(SIGINT, &once, nullptr);
  }
}

// The handler stays installed, because mpirun sends SIGTERM to ranks that are still leaving after the first one has
// left with an error, and their own exit codes must not change.
StopSignal::~StopSignal() = default;

bool StopSignal::requested() const {
  return stop_requested != 0;
}

bool any_rank_stops(const StopSignal& stop, comm::World& world) {
  return std::ranges::any_of(world.exchange(stop.requested() ? "stop" : ""),
                             [](const std::string& text) { return !text.empty(); });
}

}  // namespace strata::launcher

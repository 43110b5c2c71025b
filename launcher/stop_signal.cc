#include "launcher/stop_signal.h"

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
}

// The handler stays: mpirun sends SIGTERM to ranks that are still leaving when the first has left with an error, and
// their own exit code must stand.
StopSignal::~StopSignal() = default;

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace strata::launcher

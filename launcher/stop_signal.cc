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

StopSignal::~StopSignal() {
  for (const int signal : {SIGTERM, SIGUSR1}) std::signal(signal, SIG_DFL);
}

bool StopSignal::requested() const {
  return stop_requested != 0;
}

}  // namespace strata::launcher

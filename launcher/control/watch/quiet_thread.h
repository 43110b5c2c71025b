#pragma once
#include <string>
#include <thread>
#include <utility>

#include "base/thread.h"

namespace strata::launcher::control {

// What a thread of the control plane does first: it yields to the compute team (nice 10) and leaves the run's signals
// to the run's threads. The threads that libraries start from it take both from it.
void be_quiet(const char* name);

template <typename F>
std::jthread start_quiet_thread(const char* name, F f) {
  return start_thread("a thread of the control service", [name, f = std::move(f)](const std::stop_token& stop) mutable {
    be_quiet(name);
    f(stop);
  });
}

}  // namespace strata::launcher::control

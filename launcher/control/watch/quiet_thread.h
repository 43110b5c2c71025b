#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/note.h"
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

// Says sentences in a thread of its own: a terminal that takes nothing (Ctrl-S, a pager) does not hold up whoever has
// found something, for the others would miss that one.
class Teller {
 public:
  explicit Teller(Note say);
  ~Teller();  // says what is left

  // Never waits; what finds no room is dropped.
  void tell(std::string text);

 private:
  Note say_;
  std::mutex mutex_;
  std::condition_variable_any told_;
  std::deque<std::string> texts_;
  std::jthread thread_;
};

}  // namespace strata::launcher::control

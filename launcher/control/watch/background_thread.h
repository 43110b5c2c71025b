#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/progress.h"
#include "base/thread.h"

namespace strata::launcher::control {

// Every thread of the control plane calls this first, to yield to the compute team (nice 10) and to leave signals to
// the run's threads. Threads that libraries start from it inherit both.
void enter_background(const char* name);

template <typename F>
std::jthread start_background_thread(const char* name, F f) {
  return start_thread("a thread of the control service", [name, f = std::move(f)](const std::stop_token& stop) mutable {
    enter_background(name);
    f(stop);
  });
}

// Prints messages in a separate thread. A blocked terminal (Ctrl-S, a pager) must not block the rank that prints,
// because the other ranks would then consider it stalled.
class MessageThread {
 public:
  explicit MessageThread(Note say);
  ~MessageThread();  // prints the remaining messages

  // Never waits; drops the message if the queue is full.
  void print(std::string text);

 private:
  Note say_;
  std::mutex mutex_;
  std::condition_variable_any arrived_;
  std::deque<std::string> texts_;
  std::jthread thread_;
};

}  // namespace strata::launcher::control

#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/note.h"

namespace strata::launcher::control {

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

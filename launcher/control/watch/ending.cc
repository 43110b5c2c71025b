#include "launcher/control/watch/ending.h"

#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "launcher/control/watch/quiet_thread.h"
#include "launcher/screen/printable.h"

namespace strata::launcher::control {
namespace {

// In which ranks unwind by themselves: lanes run empty, files are closed.
constexpr std::chrono::seconds kToUnwind{6};

}  // namespace

void end_run(AbortToken& token, const std::string& text, bool speaks) {
  const auto last_resort = [] {
    be_quiet("strata-end");
    std::this_thread::sleep_for(kToUnwind);
    // Not exit(): threads are still at work in what that would take down.
    std::_Exit(static_cast<int>(Exit::failed));
  };
  bool is_armed = true;
  try {
    // Outlives whoever called: the process ends first, or by it. Before a word is said: who reads stderr may have
    // stopped, and then this returns no more.
    std::thread(last_resort).detach();
  } catch (const std::system_error&) {
    is_armed = false;
  }
  if (speaks) complain(text, Exit::failed);
  // Nobody's fault who could tell it: nobody says it again.
  token.set({-1, text, Exit::failed, true});
  if (!is_armed) last_resort();
}

}  // namespace strata::launcher::control

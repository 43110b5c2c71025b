#pragma once
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace strata {

// Throws the error that start_thread() documents.
[[noreturn]] void thread_refused(std::string_view name, const std::system_error& error);

// Starts a thread that runs f. If the system refuses the thread, throws an Error{failed} with `name` ("the I/O thread
// of a drive"), the reason, and what to do.
template <typename F>
std::jthread start_thread(std::string_view name, F&& f) {
  try {
    return std::jthread(std::forward<F>(f));
  } catch (const std::system_error& error) {
    thread_refused(name, error);
  }
}

}  // namespace strata

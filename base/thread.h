#pragma once
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace strata {

// Throws what start_thread() throws.
[[noreturn]] void thread_refused(std::string_view name, const std::system_error& error);

// A thread that runs f. Throws Error{failed} if the system starts no more threads: which one was refused (`name`:
// "the I/O thread of a drive"), why, and what to do.
template <typename F>
std::jthread start_thread(std::string_view name, F&& f) {
  try {
    return std::jthread(std::forward<F>(f));
  } catch (const std::system_error& error) {
    thread_refused(name, error);
  }
}

}  // namespace strata

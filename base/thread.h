#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata {

// Throws the error that start_thread() documents.
[[noreturn]] inline void thread_refused(std::string_view name, const std::system_error& error) {
  fail(Exit::failed,
       "the system refused to start {}: {}; raise the process limit (ulimit -u, in a container --pids-limit), or "
       "use fewer threads (device.threads, --threads) or ranks",
       name, error.code().message());
}

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

// Calls f(i) for i in [0, n) on `threads` threads; each takes the next i when it is free. Rethrows the first exception.
// For set-up only, because it starts threads. Throws Error{failed} if the system refuses a thread.
template <typename F>
void parallel(std::size_t n, int threads, F&& f) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next.fetch_add(1)) < n;) f(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = n;
    }
  };
  std::vector<std::jthread> others;
  try {
    for (int t = 1; t < threads; ++t)
      others.push_back(start_thread(fmt::format("thread {} of {} that set up the run", t + 1, threads), work));
  } catch (...) {
    next = n;  // the other threads finish the call that they are in
    throw;
  }
  work();
  others.clear();
  if (error) std::rethrow_exception(error);
}

// Like parallel(), for an f that reads files: prefetch(i) is called 16 calls before f(i) begins, so that the drive
// stays busy while f works.
template <typename Prefetch, typename F>
void parallel_reads(std::size_t n, int threads, Prefetch&& prefetch, F&& f) {
  // threads - 1 of these calls run concurrently with call i.
  const std::size_t ahead = 15 + static_cast<std::size_t>(threads);
  for (std::size_t i = 0; i < std::min(n, ahead); ++i) prefetch(i);
  parallel(n, threads, [&](std::size_t i) {
    if (i + ahead < n) prefetch(i + ahead);
    f(i);
  });
}

}  // namespace strata

#pragma once
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace strata::runtime {

// Calls f(i) for i in [0, n) on `threads` threads, each as it gets free; rethrows the first exception. For set-up.
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
  for (int t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  others.clear();
  if (error) std::rethrow_exception(error);
}

}  // namespace strata::runtime

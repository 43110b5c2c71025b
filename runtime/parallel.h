#pragma once
#include <algorithm>
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

// The same for what reads files: prefetch(i) comes well before f(i), so that the drive is busy while f works.
template <typename Prefetch, typename F>
void parallel_reads(std::size_t n, int threads, Prefetch&& prefetch, F&& f) {
  constexpr std::size_t kAhead = 16;
  for (std::size_t i = 0; i < std::min(n, kAhead); ++i) prefetch(i);
  parallel(n, threads, [&](std::size_t i) {
    if (i + kAhead < n) prefetch(i + kAhead);
    f(i);
  });
}

}  // namespace strata::runtime

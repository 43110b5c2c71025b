#pragma once
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "base/error.h"

namespace strata::tests {

// Limits this process's address space to the stacks of four more threads and some data. Returns false if that fails.
inline bool leave_few_threads() {
  std::size_t pages = 0, stack = 0;
  std::ifstream("/proc/self/statm") >> pages;
  pthread_attr_t attributes;
  rlimit limit{};
  if (pages == 0 || ::pthread_getattr_default_np(&attributes) != 0 || ::getrlimit(RLIMIT_AS, &limit) != 0) return false;
  (void)::pthread_attr_getstacksize(&attributes, &stack);
  (void)::pthread_attr_destroy(&attributes);
  limit.rlim_cur = pages * 4096 + 4 * stack + (std::size_t{16} << 20);
  return ::setrlimit(RLIMIT_AS, &limit) == 0;
}

// For a child process: ends it with the message and exit code that the program would have if f() throws.
template <typename F>
[[noreturn]] void exit_with_few_threads(F&& f) {
  if (!leave_few_threads()) std::_Exit(77);
  try {
    f();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(static_cast<int>(exit_code(error)));
  }
  std::_Exit(0);
}

}  // namespace strata::tests

// Expects that `statement`, in a process that may start only a few threads, fails with a sentence that has `words`.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EXPECT_REFUSED_THREAD(statement, words)                                        \
  do {                                                                                 \
    static_cast<void>([&] { statement; });                                             \
    GTEST_SKIP() << "sanitizers reserve more addresses than any limit allows: " words; \
  } while (0)
#else
#define EXPECT_REFUSED_THREAD(statement, words)                                                           \
  EXPECT_EXIT(                                                                                            \
      ::strata::tests::exit_with_few_threads([&] { statement; }),                                         \
      ::testing::ExitedWithCode(static_cast<int>(::strata::Exit::failed)),                                \
      ::testing::AllOf(::testing::HasSubstr("the system refused to start "), ::testing::HasSubstr(words), \
                       ::testing::HasSubstr("Resource temporarily unavailable"), ::testing::HasSubstr("ulimit -u")))
#endif

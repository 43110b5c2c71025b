#include "base/thread.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/few_threads.h"

namespace strata {
namespace {

TEST(Parallel, CallsEachIndexOnce) {
  std::vector<std::atomic<int>> calls(100);
  parallel(calls.size(), 3, [&](std::size_t i) { ++calls[i]; });
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
}

TEST(Parallel, RethrowsTheExceptionOfACall) {
  EXPECT_THROW(parallel(100, 3,
                        [](std::size_t i) {
                          if (i == 50) throw std::runtime_error("50");
                        }),
               std::runtime_error);
}

// The threads already started must end first, because they still use the caller's data.
TEST(Parallel, EndsIfTheSystemRefusesAThread) {
  std::atomic<int> calls = 0;
  const auto work = [&](std::size_t) {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  EXPECT_REFUSED_THREAD(parallel(std::size_t{1} << 40, 256, work), "of 256 that set up the run");
}

TEST(ParallelReads, AnnouncesEachIndexOnce) {
  for (const int threads : {1, 3}) {
    std::vector<std::atomic<int>> said(100), read(100);
    parallel_reads(
        said.size(), threads, [&](std::size_t i) { ++said[i]; },
        [&](std::size_t i) {
          ++read[i];
          for (std::size_t next = i; next < std::min(said.size(), i + 16) && threads == 1; ++next)
            EXPECT_EQ(said[next], 1) << next << " at " << i;
        });
    for (std::size_t i = 0; i < said.size(); ++i) EXPECT_TRUE(said[i] == 1 && read[i] == 1) << i;
  }
  parallel_reads(
      0, 2, [](std::size_t) { FAIL(); }, [](std::size_t) { FAIL(); });
}

}  // namespace

}  // namespace strata

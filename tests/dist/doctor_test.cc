// The lines of `strata doctor` about the machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>

#include <string>
#include <thread>

#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

TEST(Doctor, CountsTheProcessorsThatItMayUse) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  int first = 0;
  while (!CPU_ISSET(first, &set)) ++first;
  const TinyRun folder;
  const Outcome outcome = run({"taskset", "-c", fmt::format("{}", first), kStrata, "doctor", folder.file("")});
  const unsigned all = std::thread::hardware_concurrency();
  const std::string of = all > 1 ? fmt::format(" of {}", all) : "";
  EXPECT_THAT(outcome.output, testing::HasSubstr("1 processor" + of + " usable by this process")) << outcome.all();
}

}  // namespace
}  // namespace strata::tests

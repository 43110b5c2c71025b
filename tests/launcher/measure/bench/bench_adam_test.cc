#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "launcher/measure/bench/bench.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// With very few parameters a pass does little more than wake threads, but the measurement must not continue for hours.
TEST(BenchAdam, EndsEvenWithTheFewestParameters) {
  BenchOptions options;
  options.parameters = 4096;
  options.threads = 1;
  std::fflush(stdout);
  testing::internal::CaptureStdout();
  EXPECT_EQ(bench_adam(options), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("(4096 parameters, 1 thread)"), HasSubstr("best of 400 rounds")));
}

}  // namespace
}  // namespace strata::launcher

#include "launcher/measure/bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;

TEST(Bench, OneRankHasNothingToSend) {
  BenchOptions options;
  options.part = "comm";
  testing::internal::CaptureStderr();
  EXPECT_EQ(bench(options), static_cast<int>(Exit::usage));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("start several, mpirun -n 2 strata bench comm"));
}

}  // namespace
}  // namespace strata::launcher

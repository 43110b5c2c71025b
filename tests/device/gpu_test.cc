#include "device/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/backend.h"
#include "device/lane.h"
#include "device/memory.h"
#include "tests/failure.h"

namespace strata::device {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The machine's GPUs are listed; if there are none, one sentence says why and what to do.
TEST(Gpus, AreFoundOrTheReasonIsGiven) {
  const Gpus found = find_gpus();
  if (found.problem.empty()) {
    ASSERT_FALSE(found.gpus.empty());
    for (const Gpu& gpu : found.gpus) {
      EXPECT_NE(gpu.name, "");
      EXPECT_GT(gpu.memory, 0u);
    }
    return;
  }
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_FALSE(found.usable());
  EXPECT_THAT(found.problem,
              AnyOf(HasSubstr("built without CUDA"), HasSubstr("driver"), HasSubstr("CUDA cannot start")));
  EXPECT_THAT(found.problem, Not(HasSubstr("\n")));
}

TEST(Gpus, AMissingGpuIsAProblemAndNotACrash) {
  Gpu gpu;
  gpu.device = {Kind::cuda, 4096};
  probe_gpu(gpu);
  EXPECT_NE(gpu.problem, "");
}

TEST(Gpus, OnlyGpusHaveDriverMemory) {
  EXPECT_FALSE(gpu_memory({}).has_value());
}

TEST(Gpus, WithoutAGpuEveryFunctionFailsWithASentence) {
  if (find_gpus().problem.empty()) GTEST_SKIP() << "this machine has a GPU";
  const Device gpu{Kind::cuda};
  const auto names_it = AllOf(AnyOf(HasSubstr("CUDA"), HasSubstr("driver")), Not(HasSubstr("\n")));
  AbortToken abort;
  EXPECT_FAILURE(Lane("lane", 1, 0, abort, gpu), Exit::usage, names_it);
  EXPECT_FAILURE(Event{gpu}, Exit::usage, names_it);
  EXPECT_FAILURE(Arena(4096, gpu), Exit::usage, names_it);
  EXPECT_FAILURE((void)Arena::host(4096, gpu), Exit::usage, names_it);
  EXPECT_FALSE(abort.is_set());
}

}  // namespace
}  // namespace strata::device

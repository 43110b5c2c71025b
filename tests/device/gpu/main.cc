#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "device/gpu.h"
#include "tests/device/gpu/reachable_memory.h"

// Every test of an operation in lanes of a real GPU. Ends with 77 and a reason where there is none.
int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  strata::device::Gpus found = strata::device::find_gpus();
  if (found.problem.empty()) {
    strata::device::probe_gpu(found.gpus[0]);
    found.problem = found.gpus[0].problem;
  }
  if (!found.problem.empty()) {
    std::printf("Skipped: %s\n", found.problem.c_str());
    return 77;
  }
  std::printf("%s\n", found.gpus[0].name.c_str());
  const int result = strata::device::testing::run_in_reachable_memory([] { return RUN_ALL_TESTS(); });
  if (result < 0) std::printf("the host's memory cannot be pinned\n");
  return result;
}

#include "device/cuda/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"

namespace strata::device::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Check, NamesTheCallAndTheError) {
  EXPECT_FAILURE(
      STRATA_CUDA(cudaErrorIllegalAddress), Exit::failed,
      AllOf(HasSubstr("cudaErrorIllegalAddress"), HasSubstr("illegal memory access"), HasSubstr("check_test.cc")));
  EXPECT_FAILURE(STRATA_CUDA(cudaErrorMemoryAllocation), Exit::does_not_fit, HasSubstr("out of memory"));
  EXPECT_NO_THROW(STRATA_CUDA(cudaSuccess));
}

TEST(Check, ExplainsErrorsOfTheMachine) {
  for (const cudaError_t error :
       {cudaErrorInsufficientDriver, cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorNoKernelImageForDevice,
        cudaErrorUnsupportedPtxVersion, cudaErrorDevicesUnavailable, cudaErrorSystemNotReady}) {
    EXPECT_NE(explain(error), "") << cudaGetErrorName(error);
    EXPECT_FAILURE(cuda_failed(error, "call", "file", 1), Exit::usage, explain(error));
  }
  EXPECT_EQ(explain(cudaErrorIllegalAddress), "");
  EXPECT_THAT(explain(cudaErrorNoKernelImageForDevice), HasSubstr("STRATA_CUDA_ARCHITECTURES"));
}

TEST(Check, FormatsVersions) {
  EXPECT_EQ(version_text(13000), "13.0");
  EXPECT_EQ(version_text(12080), "12.8");
}

}  // namespace
}  // namespace strata::device::cuda

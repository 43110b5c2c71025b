#include "device/cuda/libraries/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/libraries/library.h"
#include "device/cuda/libraries/matmul.h"
#include "tests/failure.h"

namespace strata::device::cuda {
namespace {

using ::testing::HasSubstr;

// Tests the installed library: descriptions need no GPU, and the library checks every attribute's size.
class InstalledCublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      (void)cublaslt();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(InstalledCublasLt, TakesEveryDescription) {
  for (const DType in : {DType::fp32, DType::bf16, DType::fp16})
    for (const Epilogue epilogue :
         {Epilogue::none, Epilogue::gelu_tanh, Epilogue::gelu_tanh_gradient, Epilogue::sums_a, Epilogue::sums_b})
      for (const bool bias : {false, true})
        for (const bool transposed : {false, true}) {
          const ProductShape shape{64, 48, 32,   transposed, transposed, transposed ? 64 : 32, transposed ? 32 : 48, 48,
                                   in, in, bias, false,      epilogue};
          const Matmul matmul(nullptr, {shape, 16});
          // Without a GPU, the first call that needs one fails. So the preferences were accepted.
          const Error error = tests::failure_of([&] { (void)matmul.candidates(4); });
          EXPECT_THAT(error.what(), HasSubstr("cublasLtMatmulAlgoGetHeuristic")) << bias << transposed;
        }
}

TEST_F(InstalledCublasLt, HasTheVersionThatItsNameSays) {
  EXPECT_GE(cublaslt().cublasLtGetVersion(), 120000u);
}

}  // namespace
}  // namespace strata::device::cuda


#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "launcher/measure/bench/bench.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using ::testing::HasSubstr;

BenchOptions options(const std::string& size) {
  BenchOptions out;
  out.part = "kernels";
  out.size = size;
  out.threads = 1;
  out.sets = {"device.kind=cpu"};
  return out;
}

TEST(BenchKernels, ComparesEachKernelWithACopy) {
  const tests::ScratchFolder folder;
  BenchOptions wanted = options("16MiB");
  wanted.json = folder.path() / "kernels.json";
  EXPECT_EQ(bench(wanted), 0);
  std::stringstream text;
  text << std::ifstream(*wanted.json).rdbuf();
  EXPECT_THAT(text.str(), ::testing::StartsWith("{\"bench\":\"kernels\",\"device\":"));
  EXPECT_THAT(text.str(), HasSubstr("\"kernel\":\"copy\""));
  for (const char* kernel : {"layernorm_forward", "rmsnorm_backward", "swiglu_backward", "gelu_forward",
                             "cross_entropy_gradient", "adamw fp32", "adamw 8bit", "gradient_sum"})
    EXPECT_THAT(text.str(), HasSubstr(kernel));
}

TEST(BenchKernels, RefusesSizesTooSmallToMeasure) {
  EXPECT_FAILURE((void)bench(options("1MiB")), Exit::usage, HasSubstr("16MiB"));
  EXPECT_FAILURE((void)bench(options("many")), Exit::usage, HasSubstr("--size many"));
}

}  // namespace
}  // namespace strata::launcher

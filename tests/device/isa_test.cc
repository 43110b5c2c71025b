#include "device/cpu/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace strata::device::cpu {
namespace {

// The choice is made once per process, so each case asks in a process of its own.
int code_of_choice(const char* wish) {
  setenv("STRATA_CPU_ISA", wish, 1);
  try {
    return isa() == Isa::avx512 ? 12 : 2 + (native_bf16() ? 100 : 0);
  } catch (const Error& e) {
    return 50 + static_cast<int>(e.code());
  }
}

class IsaDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(IsaDeathTest, EnvironmentForcesTheLowerOne) {
  EXPECT_EXIT(std::exit(code_of_choice("avx2")), ::testing::ExitedWithCode(2), "");
}

TEST_F(IsaDeathTest, UnknownNameIsRefused) {
  EXPECT_EXIT(std::exit(code_of_choice("sse9")), ::testing::ExitedWithCode(50 + 2), "");
}

TEST(Isa, IsDescribed) {
  EXPECT_THAT(describe(), ::testing::HasSubstr(isa() == Isa::avx512 ? "AVX-512" : "AVX2"));
  EXPECT_THAT(describe(), ::testing::HasSubstr(native_bf16() ? "bf16 products native" : "bf16 products widened"));
  EXPECT_TRUE(isa() == Isa::avx512 || !native_bf16());
  EXPECT_TRUE(has_avx512_bf16() || !avx512_bf16_products());
  EXPECT_THAT(describe_libraries(), ::testing::HasSubstr(has_amx() ? "amx" : "oneDNN")) << "one kind of processor";
}

}  // namespace
}  // namespace strata::device::cpu

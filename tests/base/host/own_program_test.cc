#include "base/host/own_program.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(OwnProgram, IsTheFileThatRuns) {
  ASSERT_TRUE(std::filesystem::exists(own_program()));
  EXPECT_TRUE(std::filesystem::equivalent(own_program(), "/proc/self/exe"));
}

}  // namespace
}  // namespace strata

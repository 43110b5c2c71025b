#include "launcher/launch/ranks/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/failure.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

struct Environment : testing::Test {
  Environment() {
    setenv("STRATA_X", "a b", 1);
    setenv("NCCL_X", "1", 1);
    setenv("MY_X", "1", 1);
    setenv("LD_LIBRARY_PATH", "/x", 1);
  }
  ~Environment() override {
    for (const char* name : {"STRATA_X", "NCCL_X", "MY_X", "LD_LIBRARY_PATH", "MY_NEW"}) unsetenv(name);
  }
};

TEST_F(Environment, WhatGoesToEveryRank) {
  EXPECT_THAT(forwarded_names({}), AllOf(Contains("STRATA_X"), Contains("NCCL_X"), Contains("LD_LIBRARY_PATH"),
                                         Not(Contains("MY_X")), Not(Contains("HOME"))));
  EXPECT_THAT(forwarded_names({"MY_X", "MY_NEW=v=w", "STRATA_X"}),
              AllOf(Contains("MY_X"), Contains("MY_NEW"), Contains("STRATA_X").Times(1)));
  EXPECT_STREQ(std::getenv("MY_NEW"), "v=w");
}

TEST_F(Environment, ANameThatIsNotSetOrNoneIsRefused) {
  EXPECT_FAILURE(forwarded_names({"MY_NEW"}), Exit::usage, AllOf(HasSubstr("MY_NEW is not set"), HasSubstr("export")));
  for (const char* wrong : {"", "=x", "1X=2", "A B=1", "A-B"})
    EXPECT_FAILURE(forwarded_names({wrong}), Exit::usage, HasSubstr("is not a variable's name"));
}

TEST_F(Environment, WhatAgentsNeed) {
  EXPECT_THAT(agent_environment(),
              AllOf(Contains("STRATA_X=a b"), Contains("LD_LIBRARY_PATH=/x"), Not(Contains("NCCL_X=1"))));
}

}  // namespace
}  // namespace strata::launcher

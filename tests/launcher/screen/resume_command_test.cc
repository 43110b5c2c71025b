#include "launcher/screen/resume_command.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace strata::launcher {
namespace {

TEST(ResumeCommand, IsTheSameOnlyIfItResumes) {
  const char* added = "the same command with --set checkpoint.resume=auto";
  EXPECT_EQ(resume_command("auto"), "the same command");
  EXPECT_EQ(resume_command("none"), added);
  EXPECT_EQ(resume_command("runs/step-00000010"), added);
  // A rank that launch has started again with a value of its own.
  ::setenv(kTypedResume, "none", 1);
  EXPECT_EQ(resume_command("auto"), added);
  ::setenv(kTypedResume, "auto", 1);
  EXPECT_EQ(resume_command("auto"), "the same command");
  ::unsetenv(kTypedResume);
}

}  // namespace
}  // namespace strata::launcher

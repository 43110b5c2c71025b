#include "base/host/host_name.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

namespace strata {
namespace {

TEST(HostName, IsWhatTheKernelSays) {
  utsname name{};
  ASSERT_EQ(::uname(&name), 0);
  EXPECT_EQ(host_name(), name.nodename);
}

}  // namespace
}  // namespace strata

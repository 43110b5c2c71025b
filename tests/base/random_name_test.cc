#include "base/random_name.h"

#include <gtest/gtest.h>

#include <set>

namespace strata {
namespace {

TEST(RandomName, IsNeverRepeated) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(random_name());
  EXPECT_EQ(names.size(), 1000U);
  for (const std::string& name : names) {
    EXPECT_EQ(name.size(), 32U);
    EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace strata

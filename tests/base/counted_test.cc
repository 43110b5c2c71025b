#include <gtest/gtest.h>

#include "base/quantity.h"

namespace strata {
namespace {

TEST(Counted, UsesTheSingularForOne) {
  EXPECT_EQ(counted(1, "file"), "1 file");
  EXPECT_EQ(counted(0, "file"), "0 files");
  EXPECT_EQ(counted(12, "file"), "12 files");
  EXPECT_EQ(counted(1, "class", "classes"), "1 class");
  EXPECT_EQ(counted(2, "class", "classes"), "2 classes");
  EXPECT_EQ(for_count(1, "is", "are"), "is");
  EXPECT_EQ(for_count(2.5, "is", "are"), "are");
}

}  // namespace
}  // namespace strata

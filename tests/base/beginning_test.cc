#include "base/beginning.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Beginning, CharactersAreNotCut) {
  EXPECT_EQ(beginning_of("abc", 5), "abc");
  EXPECT_EQ(beginning_of("abc", 3), "abc");
  EXPECT_EQ(beginning_of("abc", 2), "ab");
  EXPECT_EQ(beginning_of("aéz", 3), "aé");
  EXPECT_EQ(beginning_of("aéz", 2), "a");
  EXPECT_EQ(beginning_of("a😀", 5), "a😀");
  for (const std::size_t bytes : {1u, 2u, 3u, 4u}) EXPECT_EQ(beginning_of("a😀", bytes), "a");
  EXPECT_EQ(beginning_of("é", 1), "");
  EXPECT_EQ(beginning_of("é", 0), "");
  EXPECT_EQ(beginning_of("", 0), "");
}

TEST(Beginning, OfAnExcerptEndsWithDotsIfSomethingIsLeftOut) {
  EXPECT_EQ(excerpt("aéz", 4), "aéz");
  EXPECT_EQ(excerpt("aéz", 3), "aé...");
  EXPECT_EQ(excerpt("aéz", 2), "a...");
  EXPECT_EQ(excerpt("", 0), "");
}

}  // namespace
}  // namespace strata

#include "base/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Words, AreThePartsBetweenSeparators) {
  EXPECT_THAT(split_list("adam_w lion sgd"), ElementsAre("adam_w", "lion", "sgd"));
  EXPECT_THAT(split_list(",a,,b,", ','), ElementsAre("", "a", "", "b")) << "without an empty one at the end";
  EXPECT_THAT(split_list("one"), ElementsAre("one"));
  EXPECT_THAT(split_list(""), IsEmpty());
}

TEST(Words, AreFoundWhole) {
  EXPECT_TRUE(has_word("train training", "train"));
  EXPECT_TRUE(has_word("train training", "training"));
  EXPECT_FALSE(has_word("train training", "rain"));
  EXPECT_FALSE(has_word("train training", "train training"));
  EXPECT_FALSE(has_word("train training", ""));
  EXPECT_FALSE(has_word("", "train"));
  EXPECT_TRUE(has_word("cpu,memory", "memory", ','));
}

}  // namespace
}  // namespace strata

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/classes/label_writer.h"

namespace strata::text {
namespace {

using testing::ElementsAre;

std::string found_label(const std::vector<std::string>& names) {
  std::map<std::string, std::uint64_t> classes;
  for (const std::string& name : names) ++classes[name];
  const auto out = joined_label(classes);
  return out ? fmt::format("{}+{}", out->name, out->more) : "";
}

TEST(JoinedLabelsTest, DetectsPartsThatAreClasses) {
  EXPECT_EQ(found_label({"2", "5", "2,5"}), "2,5+0");
  EXPECT_EQ(found_label({"joy", "anger", "fear", "anger, joy", "joy,fear"}), "anger, joy+1");
  EXPECT_EQ(found_label({"joy", "anger", "joy|anger"}), "joy|anger+0");
  EXPECT_EQ(found_label({"joy", "anger", "joy; anger;"}), "joy; anger;+0");
  EXPECT_EQ(found_label({"joy", "anger", "joy,sorrow"}), "") << "sorrow is not a class";
  EXPECT_EQ(found_label({"Paris, France", "Lyon, France", "Bonn, Germany"}), "");
  EXPECT_EQ(found_label({"a,", ",b"}), "");
  EXPECT_EQ(found_label({"27", "2,5", "0, 3"}), "0, 3+1") << "numbers need not occur alone";
  EXPECT_EQ(found_label({"27", "v2,5", "2-5"}), "");
  const auto out = joined_label({{"2", 1}, {"5", 1}, {"2,5", 4}});
  ASSERT_TRUE(out);
  EXPECT_THAT(out->parts, ElementsAre("2", "5"));
  EXPECT_EQ(out->separator, ',');
  EXPECT_FALSE(out->tags);
}

// Names of classes contain these characters, too.
TEST(JoinedLabelsTest, HandlesSpacesAndSlashes) {
  EXPECT_EQ(found_label({"science", "fiction", "science fiction"}), "");
  EXPECT_EQ(found_label({"red", "green", "blue", "red green", "green blue", "red blue"}), "green blue+2");
  EXPECT_EQ(found_label({"a", "b", "c", "a/b", "b/c", "a/c"}), "a/b+2");
  EXPECT_EQ(found_label({"heavy metal", "metal", "turn on", "on"}), "");
}

TEST(JoinedLabelsTest, HandlesPartsThatNeverOccurAlone) {
  std::vector<std::string> names;
  for (int a = 0; a < 6; ++a)
    for (int b = a + 1; b < 6; ++b) names.push_back(fmt::format("c{},c{}", a, b));
  EXPECT_EQ(found_label(names), "c0,c1+14");
  std::vector<std::string> towns;
  for (int i = 0; i < 40; ++i) towns.push_back(fmt::format("Town{}, State{}", i, i % 7));
  EXPECT_EQ(found_label(towns), "") << "each town once";
}

TEST(JoinedLabelsTest, DetectsTagsOfWords) {
  EXPECT_EQ(found_label({"B-MOUNT I-MOUNT O O", "O O B-MOUNT", "O O"}), "B-MOUNT I-MOUNT O O+1");
  EXPECT_EQ(found_label({"B-MOUNT", "I-MOUNT", "O"}), "") << "one each";
  EXPECT_EQ(found_label({"O O", "type O"}), "");
}

}  // namespace
}  // namespace strata::text

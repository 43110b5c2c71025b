#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/launch/node/facts.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RecipeFiles, SurviveEncodingAsALine) {
  const std::vector<RecipeFile> files = {{"data.train", "/a b/*.bin"}, {"model.path", "/\"quoted\"\n\xc3\xa9"}};
  EXPECT_THAT(to_json(files), testing::Not(HasSubstr("\n")));
  EXPECT_EQ(parse_recipe_files(to_json(files)), files);
  EXPECT_EQ(to_json(std::vector<RecipeFile>()), "[]");
  for (const char* wrong : {"", "[", "{}", "[1]", "[[]]", "[[\"a\"]]", "[[\"a\",1]]"})
    EXPECT_THAT(parse_recipe_files(wrong), IsEmpty()) << wrong;
}

TEST(RecipeFiles, NamesMissingFilesWithTheirKeys) {
  const tests::ScratchFolder folder;
  const std::string there = folder.write("a-1.bin", "x").string();
  const std::string in = folder.path().string() + "/";
  const auto files = [](std::vector<RecipeFile> some) { return some; };
  EXPECT_THAT(unseen_here(files({{"data.train", there}, {"data.train", in + "a-*.bin"}, {"model.path", in}})),
              IsEmpty());
  EXPECT_THAT(
      unseen_here(files({{"data.train", in + "b-*.bin"}, {"data.train", there}, {"model.path", in + "nowhere"}})),
      ElementsAre("data.train: no file matches " + in + "b-*.bin", "model.path: no file matches " + in + "nowhere"));
}

}  // namespace
}  // namespace strata::launcher

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/recipe/keys/key.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Sets = std::vector<std::string>;

TEST(DataKeysTest, SourcesWithWeights) {
  const tests::ScratchFolder folder;
  const auto file = folder.write("r.toml", R"(
model.preset = "tiny-gpt2"
[[data.train]]
files = "a/*.bin"
weight = 0.7
[[data.train]]
files = ["b.bin", "c.bin"]
)");
  const Recipe r = load_recipe(file, Sets{});
  ASSERT_EQ(r.data.train.size(), 2u);
  EXPECT_THAT(r.data.train[0].files, ElementsAre((folder.path() / "a/*.bin").string()));
  EXPECT_EQ(r.data.train[0].weight, 0.7);
  EXPECT_EQ(r.data.train[1].files.size(), 2u);
  EXPECT_EQ(r.data.train[1].weight, 1);
  EXPECT_THAT(to_text(r), HasSubstr("\ndata.train.weights = [0.7, 1]\n"));
  EXPECT_THAT(to_text(recipe_with({R"(data.train=[{files="a", weight=2}, {files="b"}])"})),
              HasSubstr(R"(data.train = [{files = ["a"], weight = 2}, {files = ["b"], weight = 1}])"));
  EXPECT_THAT(to_text(recipe_with({"data.train=a"})), Not(HasSubstr("data.train.weights")));
  const auto refused = [](const char* value, const char* why) {
    EXPECT_FAILURE(recipe_with({std::string("data.train=") + value}), Exit::usage,
                   AllOf(HasSubstr("data.train "), HasSubstr(why)));
  };
  refused(R"([{files="a", weight=0}])", "source 1 has weight = 0: expected a number above 0");
  refused(R"([{files="a", weight=-1}])", "source 1 has weight = -1: expected a number above 0");
  refused(R"([{files="a", weight="b"}])", "source 1 has weight = \"b\": expected a number above 0");
  refused(R"([{weight=1}])", "source 1 has no files");
  refused(R"([{files="a", wait=1}])", "source 1 has the unknown key wait");
  refused(R"([{files="a"}, "b"])", "");
  refused(R"([{files=[]}])", "source 1 has");
}

}  // namespace
}  // namespace strata::runtime

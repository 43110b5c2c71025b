#include "runtime/recipe/toml_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

class TomlFileTest : public testing::Test {
 protected:
  toml::table read(const std::string& text, std::string_view what = "recipe") const {
    return read_toml(folder_.write("r.toml", text), what);
  }
  tests::ScratchFolder folder_;
};

TEST_F(TomlFileTest, AFileIsATable) {
  const toml::table table = read("a = 1\n[b]\nc = \"x\"\n");
  EXPECT_EQ(table["a"].value<int>(), 1);
  EXPECT_EQ(table["b"]["c"].value<std::string>(), "x");
}

TEST_F(TomlFileTest, NamesAMistakeAndItsPlace) {
  EXPECT_FAILURE(read("a = 1\nb = \n"), Exit::usage,
                 AllOf(StartsWith("recipe " + (folder_.path() / "r.toml").string()), HasSubstr("line 2, column")));
  EXPECT_FAILURE(read("a = 1\nb = ", "machine file"), Exit::usage, StartsWith("machine file "));
}

TEST_F(TomlFileTest, CommonMistakesAreExplained) {
  EXPECT_FAILURE(read("a = 1\nb = gpt2\n"), Exit::usage, EndsWith("(strings need quotes: KEY = \"TEXT\")"));
  EXPECT_FAILURE(read("b = ./model\n"), Exit::usage, EndsWith("(strings need quotes: KEY = \"TEXT\")"));
  EXPECT_FAILURE(read("a: 1\n"), Exit::usage, HasSubstr("is this YAML?"));
  EXPECT_FAILURE(read(" \n{\"a\": 1}"), Exit::usage, HasSubstr("looks like JSON: a recipe is written in TOML"));
  EXPECT_FAILURE(read_toml(folder_.path(), "recipe"), Exit::usage,
                 AllOf(HasSubstr("is a folder"), HasSubstr("--set model.path=")));
}

// The library would overflow the stack.
TEST_F(TomlFileTest, RefusesKeysWithManyParts) {
  std::string key = "a";
  for (int i = 0; i < 100; ++i) key += ".a";
  EXPECT_NO_THROW(read(key + " = 1"));
  EXPECT_FAILURE(read(key + ".a = 1"), Exit::usage, EndsWith("has a key of more than 100 parts"));
  EXPECT_NO_THROW(read("a = [" + std::string(200, ' ') + "1" + "]"));
  EXPECT_NO_THROW(read("a = \"" + std::string(300, '.') + "\"")) << "dots in a string do not nest keys";
  std::string numbers = "a = [1.5";
  for (int i = 0; i < 120; ++i) numbers += ", 1.5";
  EXPECT_NO_THROW(read(numbers + "]")) << "dots of different values";
}

// The library fails an assertion on it.
TEST_F(TomlFileTest, ReportsTextOnWhichTheLibraryAsserts) {
  EXPECT_FAILURE(read("[[\x01"), Exit::usage, HasSubstr("recipe "));
}

TEST_F(TomlFileTest, RefusesLongFiles) {
  EXPECT_FAILURE(read("#" + std::string(1 << 20, ' ')), Exit::usage, HasSubstr("r.toml"));
}

TEST(AssignmentTest, QuotesOfAKeyAreRead) {
  EXPECT_EQ(unquoted_key("q_proj"), "q_proj");
  EXPECT_EQ(unquoted_key("layers.1.mlp"), "layers.1.mlp");
  EXPECT_EQ(unquoted_key(R"("layers.1.mlp.down_proj")"), "layers.1.mlp.down_proj");
  EXPECT_EQ(unquoted_key(R"("layers\\.1".mlp)"), R"(layers\.1.mlp)");
  EXPECT_EQ(unquoted_key(R"('layers\.1.mlp')"), R"(layers\.1.mlp)");
  EXPECT_EQ(unquoted_key(R"("layers.1)"), R"("layers.1)") << "it is not TOML";
  EXPECT_EQ(unquoted_key("\"a\" = 1\nb"), "\"a\" = 1\nb") << "these are two keys";
}

TEST(AssignmentTest, ASetThatIsNotTomlIsAString) {
  EXPECT_THAT(recipe_with({"data.train=shards/00.bin"}).data.train.at(0).files, ElementsAre("shards/00.bin"));
  EXPECT_THAT(recipe_with({R"(data.train=["a", "b"])"}).data.train.at(0).files, ElementsAre("a", "b"));
  EXPECT_EQ(recipe_with({"optimizer={eps=1e-6}"}).optimizer.eps, 1e-6);
  EXPECT_EQ(recipe_with({"model.config.rope_scaling=null"}).model.config.at("rope_scaling"), "null");
  EXPECT_EQ(recipe_with({"model.config.name='null'"}).model.config.at("name"), "\"null\"");
  EXPECT_EQ(recipe_with({"model.config.flag=true"}).model.config.at("flag"), "true");
  EXPECT_EQ(recipe_with({R"(model.config.id2label={"0": "no"})"}).model.config.at("id2label"), R"({"0": "no"})")
      << "as config.json and messages write it";
  EXPECT_EQ(recipe_with({R"(model.config.id2label={"0" = "no"})"}).model.config.at("id2label"), R"({"0":"no"})");
  EXPECT_EQ(recipe_with({"memory.device=2GiB"}).memory.device, std::uint64_t{2} << 30);
  EXPECT_FAILURE(recipe_with({"training.seed=1\ntraining.max_steps=2"}), Exit::usage, HasSubstr("training.seed"));
}

}  // namespace
}  // namespace strata::runtime

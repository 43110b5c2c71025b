#include "runtime/recipe/toml_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
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

TEST_F(TomlFileTest, AMistakeIsNamedWithItsPlace) {
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
TEST_F(TomlFileTest, KeysOfManyPartsAreRefused) {
  std::string key = "a";
  for (int i = 0; i < 100; ++i) key += ".a";
  EXPECT_NO_THROW(read(key + " = 1"));
  EXPECT_FAILURE(read(key + ".a = 1"), Exit::usage, EndsWith("has a key of more than 100 parts"));
  EXPECT_NO_THROW(read("a = [" + std::string(200, ' ') + "1" + "]"));
  EXPECT_NO_THROW(read("a = \"" + std::string(300, '.') + "\"")) << "dots in a row are no key";
  std::string numbers = "a = [1.5";
  for (int i = 0; i < 120; ++i) numbers += ", 1.5";
  EXPECT_NO_THROW(read(numbers + "]")) << "dots of different values";
}

// The library fails an assertion on it.
TEST_F(TomlFileTest, WhatTheLibraryAssertsIsAMistakeToo) {
  EXPECT_FAILURE(read("[[\x01"), Exit::usage, HasSubstr("recipe "));
}

TEST_F(TomlFileTest, LongFilesAreRefused) {
  EXPECT_FAILURE(read("#" + std::string(1 << 20, ' ')), Exit::usage, HasSubstr("r.toml"));
}

}  // namespace
}  // namespace strata::runtime

#include "runtime/recipe/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(AssignmentTest, ASetThatIsNoTomlIsAString) {
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

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/recipe/recipe.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

TEST(ParallelKeys, DefaultsAreOneRankPerModel) {
  const Recipe recipe =
      recipe_with({"parallel.tensor=1", "parallel.tensor_shards=1", "parallel.sequence=false", "parallel.stages=1",
                   "parallel.schedule=1f1b", "parallel.chunks=1", "parallel.split=auto"});
  EXPECT_EQ(recipe.parallel.tensor_shards, 1);
  EXPECT_EQ(recipe.data_ranks(6), 6);
  EXPECT_EQ(Recipe().parallel.shards(), 1u);
  EXPECT_EQ(recipe_with({"parallel.tensor_shards=4"}).parallel.shards(), 4u);
  EXPECT_EQ(recipe_with({"parallel.tensor=2", "parallel.stages=3"}).data_ranks(12), 2);
}

TEST(ParallelKeys, ImpossibleValuesSayWhatIsAllowed) {
  EXPECT_FAILURE(recipe_with({"parallel.tensor=0"}), Exit::usage, HasSubstr("expected an integer from 1 to 64"));
  for (const char* large : {"128", "2048"})
    EXPECT_FAILURE(recipe_with({std::string("parallel.tensor=") + large}), Exit::usage,
                   HasSubstr("(--set): expected an integer from 1 to 64; set parallel.stages or zero.stage = 3 to "
                             "divide the model over more ranks"));
  EXPECT_EQ(recipe_with({"parallel.tensor=64"}).parallel.tensor, 64);
  EXPECT_FAILURE(recipe_with({"parallel.tensor_shards=3"}), Exit::usage, HasSubstr("expected a power of two"));
  for (const char* set : {"parallel.split=[]", "parallel.split=[-1]", "parallel.split=[1.5]", "parallel.split=even"})
    EXPECT_FAILURE(recipe_with({set}), Exit::usage, HasSubstr("expected \"auto\" or a list of integers"));
  EXPECT_FAILURE(recipe_with({"parallel.schedule=gpipe"}), Exit::usage, HasSubstr("\"1f1b\", \"interleaved\""));
}

// Ranks that share a model take the same micro-batch, so they count once in the batch.
TEST(ParallelKeys, TheBatchIsDividedOverDataRanks) {
  Recipe recipe = recipe_with({"training.global_batch_size=12", "training.micro_batch_size=2"});
  EXPECT_EQ(recipe.accumulation_steps(6), 1);
  recipe.parallel.tensor = 2;
  EXPECT_EQ(recipe.accumulation_steps(6), 2);
  recipe.parallel.stages = 3;
  EXPECT_EQ(recipe.accumulation_steps(6), 6);
}

}  // namespace
}  // namespace strata::runtime

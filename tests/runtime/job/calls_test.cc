#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/job/requirements.h"
#include "tests/failure.h"
#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

// A plan cannot hold 512 micro-batches through 130 units, but it can hold those of one of 64 stages.
TEST(Calls, CountTheCallsOfAStage) {
  Recipe recipe = tiny_job({"training.gradient_accumulation_steps=512"}, 1).recipe;
  EXPECT_FALSE(plannable(recipe, 130, 512));
  recipe.parallel.stages = 64;
  EXPECT_TRUE(plannable(recipe, 130, 512));
  EXPECT_EQ(calls_of(recipe, 130, 512), 512 * 4);
  EXPECT_EQ(calls_of(recipe, 130, 1), 4);
}

TEST(Calls, CountTheCallsOfTheLargestStage) {
  Recipe recipe = tiny_job({"training.gradient_accumulation_steps=1024"}, 1).recipe;
  recipe.parallel.stages = 2;
  recipe.parallel.split = {100, 28};
  EXPECT_EQ(calls_of(recipe, 130, 1024), 1024 * 101);
  EXPECT_FAILURE(require_plannable(recipe, 130, 1024, 2), Exit::usage,
                 ::testing::HasSubstr("1024 micro-batches per rank and step (training.gradient_accumulation_steps or "
                                      "global_batch_size) through 101 units of a stage"));
  recipe.parallel.split = {30, 30, 34, 34};  // the first and third piece belong to the first stage
  EXPECT_EQ(calls_of(recipe, 130, 1024), 1024 * 66);
}

}  // namespace
}  // namespace strata::runtime

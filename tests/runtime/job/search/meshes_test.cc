#include "runtime/job/search/meshes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/runtime/tiny_job.h"

namespace strata::runtime {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// "2x1": two ranks per layer, one stage.
std::vector<std::string> degrees_text(const Recipe::Parallel& parallel, int ranks, std::size_t units) {
  std::vector<std::string> out;
  for (const Degrees d : degrees_to_try(parallel, ranks, units))
    out.push_back(fmt::format("{}x{}", d.tensor, d.stages));
  return out;
}

TEST(Meshes, StagesAreTriedBeforeRanksThatShareALayerAndBothLast) {
  Recipe::Parallel parallel;
  EXPECT_THAT(degrees_text(parallel, 1, 8), IsEmpty());
  EXPECT_THAT(degrees_text(parallel, 3, 8), ElementsAre("1x3"));
  EXPECT_THAT(degrees_text(parallel, 8, 4), ElementsAre("1x2", "1x4", "2x1", "4x1", "8x1", "2x2", "2x4", "4x2"));
  EXPECT_THAT(degrees_text(parallel, 6, 8), ElementsAre("1x2", "1x3", "1x6", "2x1", "2x3"));
  parallel.tensor = 2;
  parallel.stages = 2;
  EXPECT_THAT(degrees_text(parallel, 4, 8), ElementsAre("4x1"));
  EXPECT_THAT(degrees_text(parallel, 8, 8), ElementsAre("2x4", "4x2", "4x1", "8x1"));
}

// A step keeps its sequences, or each data rank its micro-batches.
TEST(Meshes, KeepTheBatchOrMakeItSmaller) {
  const Job job = tiny_job({"training.gradient_accumulation_steps=3"}, 4);
  const auto same = mesh_with(job, {2, 1}, StepBatch::same), smaller = mesh_with(job, {2, 1}, StepBatch::smaller);
  ASSERT_TRUE(same && smaller);
  EXPECT_THAT(same->changes,
              ElementsAre(Pair("parallel.tensor", "2"), Pair("training.gradient_accumulation_steps", "6")));
  EXPECT_EQ(same->workload.recipe.accumulation_steps(4), 6);
  EXPECT_EQ(numbers_with(job.recipe, same->changes), Numbers::rounded);
  EXPECT_THAT(smaller->changes, ElementsAre(Pair("parallel.tensor", "2")));
  EXPECT_EQ(smaller->workload.recipe.accumulation_steps(4), 3);
  EXPECT_EQ(numbers_with(job.recipe, smaller->changes), Numbers::smaller_batch);

  const Job fixed = tiny_job({"training.global_batch_size=8"}, 4);
  EXPECT_THAT(mesh_with(fixed, {2, 1}, StepBatch::same)->changes, ElementsAre(Pair("parallel.tensor", "2")));
  EXPECT_FALSE(mesh_with(fixed, {2, 1}, StepBatch::smaller)) << "the recipe says how many sequences a step has";

  const Job staged = tiny_job({"parallel.stages=2", "training.gradient_accumulation_steps=2"}, 2);
  EXPECT_THAT(mesh_with(staged, {2, 1}, StepBatch::same)->changes,
              ElementsAre(Pair("parallel.stages", "1"), Pair("parallel.tensor", "2")));
  EXPECT_FALSE(mesh_with(staged, {2, 1}, StepBatch::smaller)) << "as many data ranks as before";
}

// Fewer micro-batches, or smaller ones, make a batch smaller only if data ranks are fewer as well.
TEST(Meshes, NumbersFollowTheBatch) {
  const Recipe recipe = tiny_job({"training.micro_batch_size=4", "training.gradient_accumulation_steps=2"}, 4).recipe;
  const auto numbers = [&](const Changes& changes) { return numbers_with(recipe, changes); };
  const char *size = "training.micro_batch_size", *steps = "training.gradient_accumulation_steps";
  EXPECT_EQ(numbers({{"parallel.tensor", "4"}, {size, "1"}, {steps, "32"}}), Numbers::other_dropout);
  EXPECT_EQ(numbers({{"parallel.tensor", "4"}, {size, "1"}, {steps, "8"}}), Numbers::smaller_batch);
  EXPECT_EQ(numbers({{"parallel.stages", "2"}, {steps, "4"}}), Numbers::same);
  EXPECT_EQ(numbers({{"parallel.stages", "2"}}), Numbers::smaller_batch);
  EXPECT_EQ(numbers({{size, "1"}}), Numbers::other_dropout);
}

// Degrees that the model or the schedule excludes are not tried.
TEST(Meshes, OmitsDegreesThatARecipeExcludes) {
  EXPECT_TRUE(mesh_with(tiny_job({"model.config.n_head=2"}, 4), {2, 1}, StepBatch::same));
  EXPECT_FALSE(mesh_with(tiny_job({"model.config.n_head=2"}, 4), {4, 1}, StepBatch::same));
  const Job interleaved = tiny_job({"parallel.stages=2", "parallel.schedule=interleaved", "parallel.chunks=2",
                                    "model.config.n_layer=4", "training.gradient_accumulation_steps=2"},
                                   2);
  EXPECT_FALSE(mesh_with(interleaved, {2, 1}, StepBatch::same)) << "one stage has no schedule to interleave";
}

// Shards grow with the ranks of a layer, unless they are a checkpoint's.
TEST(Meshes, KeepTheShardsOfACheckpoint) {
  const auto shards = Contains(Pair("parallel.tensor_shards", "4"));
  EXPECT_THAT(mesh_with(tiny_job({}, 4), {4, 1}, StepBatch::same)->changes, Not(shards)) << "as many as ranks anyway";
  EXPECT_THAT(mesh_with(tiny_job({"parallel.tensor=2"}, 4), {4, 1}, StepBatch::same)->changes, shards);
  EXPECT_THAT(mesh_with(tiny_job({"parallel.tensor_shards=1"}, 4), {4, 1}, StepBatch::same)->changes, shards);
  EXPECT_THAT(mesh_with(tiny_job({"parallel.tensor_shards=4"}, 4), {4, 1}, StepBatch::same)->changes, Not(shards));
  EXPECT_FALSE(
      mesh_with(tiny_job({"parallel.tensor_shards=2", "checkpoint.resume=/none"}, 4), {4, 1}, StepBatch::same));
  for (const std::int64_t of_checkpoint : {1, 2, 4}) {
    Workload resumed = tiny_job({}, 4);
    resumed.resolved.tensor_shards = of_checkpoint;
    const Job job = make_job(resumed, 4, capacity_of(resumed.recipe.memory, 1));
    EXPECT_EQ(mesh_with(job, {4, 1}, StepBatch::same).has_value(), of_checkpoint == 4) << of_checkpoint;
  }
}

}  // namespace
}  // namespace strata::runtime

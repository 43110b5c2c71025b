#include "runtime/checkpoint/kept_best.h"

#include <gmock/gmock.h>

#include <cmath>

#include "runtime/recipe/load_recipe.h"

namespace strata::runtime {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

Manifest manifest(std::map<std::string, std::string> recipe, Best best) {
  Manifest m;
  m.recipe = std::move(recipe);
  m.progress.best = best;
  return m;
}

TEST(KeptBest, NeedsARunThatKeepsTheBest) {
  std::map<std::string, std::string> recipe = {{"checkpoint.keep_best", "true"}, {"evaluation.metric", "\"eval_f1\""}};
  const auto best = best_checkpoint(manifest(recipe, {3, 0.5, 0, 3}));
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 3);
  EXPECT_TRUE(best->greater) << "as the metric requires";
  recipe["evaluation.greater_is_better"] = "false";
  EXPECT_FALSE(best_checkpoint(manifest(recipe, {3, 0.5, 0, 3}))->greater);
  EXPECT_FALSE(best_checkpoint(manifest(recipe, {3, std::nan(""), 0, 3})));
  recipe["checkpoint.keep_best"] = "false";
  EXPECT_FALSE(best_checkpoint(manifest(recipe, {3, 0.5, 0, 3})));
}

TEST(KeptBest, AMeasureIncludesTheValidationDatasContents) {
  Recipe recipe;
  recipe.data.validation = {"here.bin"};
  const auto values = values_of(recipe);
  Manifest older = manifest({values.begin(), values.end()}, {3, 0.5, 0, 3});
  EXPECT_TRUE(same_measure(older, recipe, "b")) << "by the name";
  Manifest newer = older;
  newer.validation_hash = "a";
  EXPECT_FALSE(same_measure(newer, recipe, "b"));
  recipe.data.validation = {"there.bin"};
  EXPECT_TRUE(same_measure(newer, recipe, "a"));
  EXPECT_FALSE(same_measure(older, recipe, "a"));
  recipe.evaluation.max_sequences = 7;
  EXPECT_FALSE(same_measure(newer, recipe, "a"));
  Manifest other = newer;
  newer.recipe["checkpoint.keep_best"] = other.recipe["checkpoint.keep_best"] = "true";
  other.validation_hash = "b";
  EXPECT_NE(best_checkpoint(newer)->measure, best_checkpoint(other)->measure);
}

// Older manifests have neither a hash nor absolute paths.
TEST(KeptBest, AnOlderMeasureEqualsANewerOneByNames) {
  Recipe recipe;
  recipe.data.validation = {"here.bin", "there/*.bin"};
  recipe.checkpoint.keep_best = true;
  const auto values = values_of(recipe), absolute = values_of(with_absolute_paths(recipe));
  const Manifest older = manifest({values.begin(), values.end()}, {3, 0.5, 0, 3});
  Manifest newer = manifest({absolute.begin(), absolute.end()}, {3, 0.5, 0, 3});
  newer.validation_hash = "a";
  EXPECT_EQ(best_checkpoint(older)->measure, best_checkpoint(newer)->by_names);
  EXPECT_NE(best_checkpoint(older)->measure, best_checkpoint(newer)->measure);
  EXPECT_EQ(best_checkpoint(older)->by_names, "");
}

// Another version's manifest may name the files in a way that this one does not read.
TEST(KeptBest, UnknownValuesOfTheValidationDataAreComparedAsTheyAre) {
  std::map<std::string, std::string> recipe = {{"checkpoint.keep_best", "true"}};
  const auto measure = [&](const char* validation) {
    recipe["data.validation"] = validation;
    return best_checkpoint(manifest(recipe, {3, 0.5, 0, 3}))->measure;
  };
  EXPECT_THAT(measure(R"(["here.bin", 3])"), testing::HasSubstr(R"(["here.bin", 3])"));
}

TEST(KeptBest, KeepsTheBestExistingCheckpointOfEachMeasure) {
  const auto best = [](const char* measure, std::int64_t step, double value) {
    return std::optional(BestCheckpoint{measure, false, step, value});
  };
  // Step 10 is the best by the loss, 20 names no best, and 30 is the best by another measure.
  EXPECT_THAT(best_by_measure({{10, 1, best("loss", 10, 2.0)}, {20, 2, {}}, {30, 3, best("f1", 30, 1.0)}}),
              UnorderedElementsAre(0, 2));
  // A better checkpoint replaces it if it exists, otherwise not.
  EXPECT_THAT(best_by_measure({{10, 1, best("loss", 10, 2.0)}, {20, 2, best("loss", 20, 1.5)}}), ElementsAre(1));
  EXPECT_THAT(best_by_measure({{10, 1, best("loss", 10, 2.0)}, {30, 3, best("loss", 20, 1.5)}}), ElementsAre(0));
  // One of an older version, whose measure has names, under which a newer one has found contents.
  auto newer = best("contents", 20, 1.5);
  newer->by_names = "names";
  EXPECT_THAT(best_by_measure({{10, 1, best("names", 10, 2.0)}, {20, 2, newer}}), ElementsAre(1));
  EXPECT_THAT(best_by_measure({{10, 1, best("names", 10, 1.0)}, {20, 2, newer}}), ElementsAre(0));
  // The files of those names have changed since.
  auto changed = best("changed contents", 30, 0.5);
  changed->by_names = "names";
  EXPECT_THAT(best_by_measure({{10, 1, best("names", 10, 1.0)}, {20, 2, newer}, {30, 3, changed}}),
              UnorderedElementsAre(0, 2));
  EXPECT_THAT(best_by_measure({{10, 1, best("others", 10, 2.0)}, {20, 2, newer}}), UnorderedElementsAre(0, 1));
  // The same step exists again, from a run that started over. The older one is meant.
  EXPECT_THAT(best_by_measure({{10, 1, best("loss", 10, 2.0)}, {10, 4, {}}}), ElementsAre(0));
}

}  // namespace
}  // namespace strata::runtime

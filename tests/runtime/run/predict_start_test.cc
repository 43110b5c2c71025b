#include <gmock/gmock.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/job/make_job.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/resume.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

// A run of five steps with evaluations after the second and the fourth, and checkpoints after the last three.
class PredictStart : public testing::Test {
 protected:
  PredictStart() {
    std::filesystem::copy(run_.folder().path() / "tokens.bin", run_.folder().path() / "validation.bin");
    run_.run(1, sets(), 5, {3, 4, 5});
  }
  std::vector<std::string> sets(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"data.validation=" + (run_.folder().path() / "validation.bin").string(),
                                    "evaluation.every=2", "evaluation.max_sequences=2", "checkpoint.keep=9",
                                    "training.max_steps=5"};
    all.insert(all.end(), more.begin(), more.end());
    return run_.sets(1, all);
  }
  StartPoint start(const std::vector<std::string>& more = {}) const {
    return predict_start(load_recipe(std::nullopt, sets(more)), 2);
  }
  bool comes(const std::vector<std::string>& more = {}) const {
    return will_evaluate(load_recipe(std::nullopt, sets(more)), start(more));
  }
  void damage(int step) const {
    const std::string file = fmt::format("checkpoints/step-{:08}/rank-00000-of-00001.safetensors", step);
    std::string bytes = run_.folder().read(file);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    run_.folder().write(file, bytes);
  }
  SavedRun run_;
};

// What training would say of its checkpoint is known before it starts.
TEST(RefusedByCheckpoint, SaysWhatTheRunWouldSay) {
  const SavedRun run;
  const std::string heads = "model.config.n_head=4";
  run.run(2, run.sets(2, {heads}), 2, {2});
  const auto why = [&](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {heads};
    sets.insert(sets.end(), more.begin(), more.end());
    const Recipe recipe = load_recipe(std::nullopt, run.sets(2, sets));
    return refused_by_checkpoint(make_job(open_workload(recipe), 2, capacity_of(recipe.memory, 1)));
  };
  EXPECT_EQ(why({}), "");
  EXPECT_THAT(why({"training.reduce_group=2"}),
              testing::HasSubstr("step-00000002 was written with training.reduce_group = 1, but the recipe says 2"));
  EXPECT_THAT(why({"parallel.tensor_shards=2"}),
              testing::HasSubstr("parallel.tensor_shards = 1, but the recipe says 2"));
  EXPECT_EQ(why({"training.reduce_group=2", "checkpoint.resume=none"}), "");
}

TEST_F(PredictStart, FollowsTheNewestCheckpoint) {
  EXPECT_EQ(start().step, 5);
  EXPECT_FALSE(comes()) << "no evaluation is left";
  EXPECT_TRUE(comes({"training.max_steps=6"}));
  EXPECT_TRUE(comes({"checkpoint.resume=none"}));
  const std::string fourth = "checkpoint.resume=" + (run_.checkpoints() / "step-00000004").string();
  EXPECT_TRUE(start({fourth}).evaluated);
  EXPECT_FALSE(comes({fourth}));
  // With another measure, the evaluation is repeated.
  EXPECT_TRUE(comes({fourth, "evaluation.max_sequences=1"}));
  // The contents of data.validation are compared, not its name.
  const std::filesystem::path moved = run_.folder().path() / "moved.bin";
  std::filesystem::copy(run_.folder().path() / "validation.bin", moved);
  EXPECT_FALSE(comes({fourth, "data.validation=" + moved.string()}));
  run_.folder().write("validation.bin", std::string(400, '\1'));
  EXPECT_TRUE(comes({fourth}));
}

// The run finds the damage when it reads the checkpoint, and resumes from an older one.
TEST_F(PredictStart, FollowsACompleteCheckpoint) {
  damage(5);
  EXPECT_EQ(start().step, 4);
  EXPECT_FALSE(comes()) << "the fourth step's evaluation is done";
  damage(4);
  EXPECT_EQ(start().step, 3);
  EXPECT_TRUE(comes());
}

TEST_F(PredictStart, ExhaustedPatienceDoesNotChangeThePlan) {
  const std::vector<std::string> patient = {"evaluation.patience=1", "evaluation.greater_is_better=false"};
  std::filesystem::remove_all(run_.checkpoints());
  run_.run(1, sets({"checkpoint.resume=none", patient[0], patient[1]}), 5, {4});
  EXPECT_TRUE(comes(patient));
}

TEST_F(PredictStart, UsesTheCheckpointsShardsByDefault) {
  Recipe recipe = load_recipe(std::nullopt, sets());
  EXPECT_EQ(resumed_shards(recipe), 1);
  EXPECT_EQ(shards_to_take(recipe, 1), 1);
  recipe.parallel.tensor = 2;
  EXPECT_EQ(shards_to_take(recipe, 4), 4);
  EXPECT_EQ(shards_to_take(recipe, 0), std::nullopt) << "there is no checkpoint";
  EXPECT_FAILURE((void)shards_to_take(recipe, 1), Exit::usage,
                 testing::HasSubstr("parallel.tensor = 2 does not divide it: use at most 1 rank per block"));
  EXPECT_EQ(shards_to_take(recipe, 1, Purpose::evaluate), 1) << "only a training divides the model";
  recipe.parallel.tensor_shards = 4;
  EXPECT_EQ(shards_to_take(recipe, 8), std::nullopt) << "the recipe names a number";
}

}  // namespace
}  // namespace strata::runtime

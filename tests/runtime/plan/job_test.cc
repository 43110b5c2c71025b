#include "runtime/plan/job.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

// A workload whose files decided some keys.
Workload decided_workload(std::vector<std::string> sets) {
  Workload out{recipe_with(std::move(sets)),
               models::Config::parse(R"({"n_layer": 2, "id2label": {"0": "of the model"}})", "test")};
  out.data.packing = Packing::documents;
  out.resolved.objective = models::Objective::masked_lm;
  out.resolved.tensor_shards = 4;
  return out;
}

TEST(WorkloadTest, FilesDecideOnlyWhatTheRecipeLeavesOpen) {
  const Workload open = decided_workload({});
  EXPECT_EQ(open.objective(), models::Objective::masked_lm);
  EXPECT_EQ(open.packing(), Packing::documents);
  EXPECT_EQ(open.shards(), 4u);
  const Workload given =
      decided_workload({"training.objective=causal_lm", "data.packing=stream", "parallel.tensor_shards=2"});
  EXPECT_EQ(given.objective(), models::Objective::causal_lm);
  EXPECT_EQ(given.packing(), Packing::stream);
  EXPECT_EQ(given.shards(), 2u);
}

TEST(WorkloadTest, TheCompleteRecipeIsTheOneThatGivesEveryKey) {
  const Workload open = decided_workload({"training.seed=7"});
  EXPECT_EQ(to_text(open.complete_recipe()),
            to_text(recipe_with({"training.seed=7", "training.objective=masked_lm", "data.packing=documents",
                                 "parallel.tensor_shards=4"})));
  EXPECT_EQ(to_text(open.recipe), to_text(recipe_with({"training.seed=7"})));
}

// The data's classes replace those of the recipe. What the recipe says about a part of a value holds for the data's,
// too.
TEST(WorkloadTest, OverridesTheModelsConfiguration) {
  Workload workload = decided_workload({R"(model.config.id2label={"0":"of the recipe"})",
                                        R"(model.config.id2label.1="also")", "model.config.n_layer=3"});
  EXPECT_EQ(workload.config().text_or("id2label.0", ""), "of the recipe");
  workload.resolved.config["id2label"] = R"({"0":"of the data"})";
  const models::Config config = workload.config();
  EXPECT_EQ(config.text_or("id2label.0", ""), "of the data");
  EXPECT_EQ(config.text_or("id2label.1", ""), "also");
  EXPECT_EQ(config.require_int("n_layer"), 3);
  const Recipe complete = workload.complete_recipe();
  EXPECT_EQ(complete.model.config.at("id2label"), R"({"0":"of the data"})");
  EXPECT_EQ(complete.model.config.size(), 3u);
}

TEST(WorkloadTest, TakesAnAdapterAndItsBaseFromFiles) {
  Workload workload = decided_workload({"adapter.kind=lora", "adapter.rank=2"});
  EXPECT_EQ(workload.adapter().lora.rank, 2);
  EXPECT_FALSE(workload.has_adapter_of_checkpoint());
  Recipe::AdapterKeys keys;
  keys.kind = AdapterKind::lora;
  keys.lora.rank = 3;
  workload.resolved.adapter = ResolvedAdapter{keys, ResolvedAdapter::Frozen{FrozenFormat::nf4, false}};
  workload.resolved.base = "base";
  // Whatever recipe a search plans.
  const Workload other = workload.with(recipe_with({"zero.stage=1"}));
  for (const Workload& one : {workload, other}) {
    EXPECT_TRUE(one.has_adapter_of_checkpoint());
    EXPECT_EQ(one.adapter().lora.rank, 3);
    EXPECT_EQ(one.quantised(), device::StorageFormat::nf4_plain);
    EXPECT_EQ(one.model_path(), "base");
    const Recipe complete = one.complete_recipe();
    EXPECT_EQ(complete.adapter.lora.rank, 3);
    EXPECT_EQ(complete.model.quantised(), one.quantised());
    EXPECT_EQ(complete.model.path, "base");
  }
}

}  // namespace
}  // namespace strata::runtime

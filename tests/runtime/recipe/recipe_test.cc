#include "runtime/recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Sets = std::vector<std::string>;

TEST(RecipeTest, DefaultsAreTheDocumentedOnes) {
  const Recipe r = recipe_with({});
  EXPECT_EQ(r.model.init, Init::random);
  EXPECT_EQ(r.data.seq_len, 1024);
  EXPECT_EQ(r.data.order, DataOrder::shuffle);
  EXPECT_FALSE(r.training.max_steps.has_value());
  EXPECT_EQ(r.training.precision, device::DType::bf16);
  EXPECT_EQ(r.training.max_grad_norm, 1.0);
  EXPECT_EQ(r.optimizer.betas, (std::array{0.9, 0.95}));
  EXPECT_EQ(r.scheduler.name, Decay::cosine);
  EXPECT_EQ(r.memory.prefetch, 2);
  EXPECT_EQ(r.accumulation_steps(8), 1);
  EXPECT_EQ(load_recipe(std::nullopt, Sets{"model.path=m"}).model.init, Init::pretrained);
  EXPECT_EQ(load_recipe(std::nullopt, Sets{"model.path=m", "model.init=random"}).model.init, Init::random);
}

TEST(RecipeTest, ReadsNvmeSettings) {
  const offload::IoOptions chosen = recipe_with({}).io_options();
  EXPECT_FALSE(chosen.engine || chosen.direct || chosen.registered || chosen.verify);
  const offload::IoOptions forced =
      recipe_with({"memory.io_engine=libaio", "memory.io_direct=false", "memory.verify=true",
                   "memory.io_registered=true", "memory.io_registered=auto"})
          .io_options();
  EXPECT_EQ(forced.engine, offload::Engine::libaio);
  EXPECT_EQ(forced.direct, false);
  EXPECT_EQ(forced.registered, std::nullopt);
  EXPECT_TRUE(forced.verify);
  EXPECT_FAILURE(recipe_with({"memory.io_engine=aio"}), Exit::usage, HasSubstr("\"libaio\""));
  EXPECT_FAILURE(recipe_with({"memory.io_direct=1"}), Exit::usage, HasSubstr("true or false"));
  EXPECT_FAILURE(recipe_with({"memory.verify=auto"}), Exit::usage, HasSubstr("true or false"));
}

TEST(RecipeTest, OptimizersAndTheirMoments) {
  using device::Algorithm, device::StorageFormat;
  const auto of = [](const Sets& sets) { return recipe_with(sets).optimizer; };
  EXPECT_EQ(of({}).algorithm(), Algorithm::adamw);
  EXPECT_EQ(of({}).moment_format(), StorageFormat::fp32);
  EXPECT_EQ(of({"optimizer.name=adamw8bit"}).algorithm(), Algorithm::adamw);
  EXPECT_EQ(of({"optimizer.name=adamw8bit"}).moment_format(), StorageFormat::block8);
  EXPECT_EQ(of({"optimizer.name=adamw8bit", "optimizer.moments=8bit"}).moment_format(), StorageFormat::block8);
  EXPECT_EQ(of({"optimizer.name=sgd", "optimizer.moments=bf16"}).algorithm(), Algorithm::sgd);
  EXPECT_EQ(of({"optimizer.name=sgd", "optimizer.moments=bf16"}).moment_format(), StorageFormat::bf16);
  EXPECT_EQ(of({"optimizer.name=lion"}).algorithm(), Algorithm::lion);
  EXPECT_EQ(of({"optimizer.name=lion"}).betas, (std::array<double, 2>{0.9, 0.99}));
  EXPECT_EQ(of({"optimizer.name=lion", "optimizer.betas=[0.95, 0.98]"}).betas, (std::array<double, 2>{0.95, 0.98}));
  EXPECT_EQ(of({}).betas, (std::array<double, 2>{0.9, 0.95}));
  for (const char* moments : {"fp32", "bf16"})
    EXPECT_FAILURE(recipe_with({"optimizer.name=adamw8bit", fmt::format("optimizer.moments={}", moments)}), Exit::usage,
                   AllOf(HasSubstr("optimizer.name"), HasSubstr("optimizer.moments"), HasSubstr(moments)));
  EXPECT_FAILURE(recipe_with({"optimizer.momentum=1"}), Exit::usage, HasSubstr("below 1"));
  EXPECT_FAILURE(recipe_with({"optimizer.moments=4bit"}), Exit::usage, HasSubstr("\"8bit\""));
}

TEST(RecipeTest, GlobalBatchSizeDividesOverTheRanks) {
  const Recipe r = recipe_with({"training.global_batch_size=24", "training.micro_batch_size=2"});
  EXPECT_EQ(r.accumulation_steps(1), 12);
  EXPECT_EQ(r.accumulation_steps(4), 3);
  EXPECT_FAILURE(r.accumulation_steps(5), Exit::usage,
                 AllOf(HasSubstr("training.global_batch_size = 24"), HasSubstr("5 ranks"),
                       HasSubstr("training.micro_batch_size = 2"), HasSubstr("multiple of 10")));
  EXPECT_EQ(recipe_with({"training.gradient_accumulation_steps=3"}).accumulation_steps(5), 3);
}

TEST(RecipeTest, TrainingNeedsStepsAndData) {
  EXPECT_FAILURE(require_trainable(recipe_with({})), Exit::usage, HasSubstr("training.max_steps"));
  EXPECT_FAILURE(require_trainable(recipe_with({"training.max_steps=1"})), Exit::usage, HasSubstr("data.train"));
  require_trainable(recipe_with({"training.max_steps=0"}));
  require_trainable(recipe_with({"training.max_steps=1", "data.train=x"}));
}

TEST(RecipeTest, EvaluationsNeedFilesAndSteps) {
  const auto refused = [](const std::vector<std::string>& sets, const std::string& why) {
    EXPECT_FAILURE(require_evaluable(recipe_with(sets)), Exit::usage, HasSubstr(why));
  };
  refused({"evaluation.every=1"}, "evaluation.every requests evaluations while training, but data.validation is");
  refused({"evaluation.at_start=true"}, "evaluation.at_start requests evaluations while training, but data.validation");
  refused({"evaluation.patience=2"}, "evaluation.patience counts evaluations, but evaluation.every is 0");
  refused({"checkpoint.keep_best=true"}, "checkpoint.keep_best keeps what evaluations find best, but evaluation.every");
  refused({"checkpoint.keep_best=true", "evaluation.every=1", "data.validation=v"}, "keep_best needs checkpoint.dir");
  require_evaluable(recipe_with({"evaluation.every=1", "evaluation.patience=2", "data.validation=v"}));
  EXPECT_FAILURE(require_trainable(recipe_with({"training.max_steps=0", "evaluation.patience=2"})), Exit::usage,
                 HasSubstr("evaluation.patience"));
}

}  // namespace
}  // namespace strata::runtime

#include "runtime/recipe/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/failure.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(KeysTest, UnknownKeysNameTheNearest) {
  const auto nearest = [](const std::string& set, const std::string& known) {
    EXPECT_FAILURE(
        recipe_with({set}), Exit::usage,
        AllOf(HasSubstr("unknown key " + set.substr(0, set.find('='))), HasSubstr("did you mean " + known + "?")));
  };
  nearest("training.precison=1", "training.precision");
  nearest("precision=1", "training.precision");
  nearest("learning_rate=1", "optimizer.learning_rate");
  nearest("training.stage=1", "zero.stage");
  nearest("zero.stage.x=1", "zero.stage");
  nearest("model.presets=1", "model.preset");
  nearest("training.micro-batch-size=1", "training.micro_batch_size");
  nearest("Training.Precision=1", "training.precision");
  nearest("training.micro_batch=3", "training.micro_batch_size");
  for (const char* other : {"foo.bar=3", "Lion=1", "training.eggs=3"})
    EXPECT_FAILURE(recipe_with({other}), Exit::usage, HasSubstr("no key has a similar name"));
  EXPECT_FAILURE(recipe_with({"training=3"}), Exit::usage, HasSubstr("is a section"));
  EXPECT_FAILURE(recipe_with({"model.config=3"}), Exit::usage, HasSubstr("is a section"));
  EXPECT_FAILURE(recipe_with({"training.seed"}), Exit::usage, HasSubstr("KEY=VALUE"));
  EXPECT_FAILURE(recipe_with({"=3"}), Exit::usage, HasSubstr("KEY=VALUE"));
  EXPECT_FAILURE(recipe_with({std::string(100000, 'k') + "=3"}), Exit::usage, HasSubstr("unknown key"));
}

TEST(KeysTest, SearchesMeaningsToo) {
  EXPECT_THAT(keys_about("lora_alpha"), AllOf(HasSubstr("adapter.alpha = "), HasSubstr("lora_alpha (other tools)")));
  EXPECT_THAT(keys_about("bf16"), HasSubstr("training.precision = "));
}

TEST(KeysTest, TheDocumentationMatchesTheTable) {
  std::ifstream file(tests::source_dir() / "docs/recipe.md");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), recipe_reference())
      << "write it again: strata keys > docs/recipe.md";
}

}  // namespace
}  // namespace strata::runtime

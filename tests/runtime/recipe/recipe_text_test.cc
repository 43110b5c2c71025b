#include "runtime/recipe/recipe_text.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstring>
#include <filesystem>

#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using Sets = std::vector<std::string>;
// Again read from its text, a recipe is the same, whatever its keys are at and wherever the text lies.
TEST(RecipeTextTest, ARecipeAsAFile) {
  const tests::ScratchFolder folder;
  for (const Sets& sets :
       {Sets{"model.preset=tiny-gpt2"},
        Sets{"model.path=m", "data.train=[\"a.bin\", \"~/b/*.bin\"]", "data.validation=../v.bin", "memory.nvme=[\"x\"]",
             "optimizer.name=lion", "training.recompute=[1, 3]", "memory.device=2GiB", "zero.optimizer=nvme",
             "checkpoint.dir=c", "checkpoint.resume=c/step-1", "model.config.rope_scaling.factor=2.0",
             "model.config.x=null", "model.config.s=\"a\\\"b\"", "report.jsonl=r.jsonl", "device.threads=3"},
        Sets{"model.preset=tiny-llama", "optimizer.name=sgd", "training.max_grad_norm=0", "memory.io_direct=false",
             "training.global_batch_size=64", "fp16.initial_scale=1e5"}}) {
    const Recipe recipe = load_recipe(std::nullopt, sets);
    const Recipe again = load_recipe(folder.write("below/r.toml", to_toml(recipe)), {});
    const auto without_null = [](std::string text) {
      const auto at = text.find("model.config.x = null\n");
      return at == std::string::npos ? text : text.erase(at, std::strlen("model.config.x = null\n"));
    };
    EXPECT_EQ(without_null(to_text(again)),
              without_null(to_text(load_recipe(folder.write("n.toml", to_toml(again)), {}))));
    EXPECT_EQ(again.device.threads, recipe.device.threads);
    EXPECT_FALSE(again.report.jsonl.has_value());
    EXPECT_EQ(again.training.global_batch_size, recipe.training.global_batch_size);
    EXPECT_EQ(again.model.config.size(), recipe.model.config.size() - recipe.model.config.count("x"));
    for (const auto& [key, json] : again.model.config) EXPECT_EQ(json, recipe.model.config.at(key)) << key;
    ASSERT_EQ(again.data.train.size(), recipe.data.train.size());
    for (std::size_t i = 0; i < recipe.data.train.size(); ++i) {
      EXPECT_EQ(again.data.train[i].weight, recipe.data.train[i].weight);
      for (std::size_t k = 0; k < recipe.data.train[i].files.size(); ++k)
        EXPECT_EQ(again.data.train[i].files[k],
                  std::filesystem::absolute(recipe.data.train[i].files[k]).lexically_normal().string());
    }
  }
}

// What a run sets in the model's config itself comes as JSON: labels of classes have any names.
TEST(RecipeTextTest, ValuesOfTheConfigAreTomlWhateverTheyAre) {
  const tests::ScratchFolder folder;
  Recipe recipe = load_recipe(std::nullopt, Sets{"model.preset=tiny-gpt2"});
  recipe.model.config = {{"id2label", R"({"0":"neg","1":"a \"b\" \\ \u007f \u00e9 \ud83d\ude00","10":"x/y"})"},
                         {"label2id", R"({"neg":0,"a b.c=d":1,"":2})"},
                         {"architectures", R"(["BertForSequenceClassification"])"},
                         {"rope_scaling.factor", "2.0"},
                         {"nested", R"({"a":[1,-2.5,1e-7,true,[]],"b":{},"c":1e30})"}};
  const Recipe again = load_recipe(folder.write("r.toml", to_toml(recipe)), {});
  ASSERT_EQ(again.model.config.size(), recipe.model.config.size()) << to_toml(recipe);
  for (const auto& [key, json] : recipe.model.config) {
    simdjson::dom::parser left, right;
    const simdjson::dom::element was = left.parse(simdjson::padded_string(json));
    const simdjson::dom::element is = right.parse(simdjson::padded_string(again.model.config.at(key)));
    ASSERT_EQ(was.type(), is.type()) << key;
    if (!was.is_object()) {
      EXPECT_EQ(simdjson::minify(was), simdjson::minify(is)) << key;
      continue;
    }
    EXPECT_EQ(was.get_object().value().size(), is.get_object().value().size()) << key;
    const simdjson::dom::object fields = was;
    for (const auto field : fields)
      EXPECT_EQ(simdjson::minify(field.value), simdjson::minify(is[field.key].value())) << key << " " << field.key;
  }
  EXPECT_EQ(to_toml(load_recipe(folder.write("s.toml", to_toml(again)), {})), to_toml(again));
}

TEST(RecipeTextTest, CanonicalTextSeesAllThatMattersToAllRanks) {
  const std::string text = to_text(recipe_with({}));
  EXPECT_EQ(text, to_text(recipe_with({"report.jsonl=x", "device.threads=3"})));
  EXPECT_EQ(text, to_text(recipe_with({"optimizer.learning_rate=0.0003", "memory.prefetch=2"})));
  for (const char* set : {"training.seed=1", "model.config.n_layer=2", "optimizer.eps=1e-9", "training.recompute=[0]",
                          "memory.device=1GiB", "comm.transport=messages", "data.train=x", "zero.stage=3"}) {
    EXPECT_NE(text, to_text(recipe_with({set}))) << set;
  }
}

}  // namespace
}  // namespace strata::runtime

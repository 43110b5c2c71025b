#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "base/json/json_writer.h"
#include "models/files/config.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/recipe/toml_file.h"
#include "tests/canonical_json.h"
#include "tests/runtime/recipe/recipe_with.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using Sets = std::vector<std::string>;
// A recipe that is read from its own text is the same, for any values and any location of the file.
TEST(RecipeTextTest, WritesARecipeAsAFile) {
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

TEST(RecipeTextTest, WritesAbsolutePaths) {
  Recipe recipe;
  recipe.model.path = "a/../m";
  recipe.adapter.path = "p";
  recipe.checkpoint.dir = "/c";
  recipe.data.validation = {"v/*.bin"};
  const Recipe whole = with_absolute_paths(recipe);
  const std::filesystem::path here = std::filesystem::current_path();
  EXPECT_EQ(whole.model.path, here / "m");
  EXPECT_EQ(whole.adapter.path, here / "p");
  EXPECT_EQ(whole.checkpoint.dir, "/c");
  EXPECT_EQ(whole.data.validation[0], (here / "v/*.bin").string());
  EXPECT_EQ(whole.checkpoint.resume, "auto");
}

// The values that a run itself sets in the model's config are JSON, and names of classes may be any text.
TEST(RecipeTextTest, WritesConfigValuesAsToml) {
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

// Their defaults depend on other keys. A given value is written even if it is the default in another case.
TEST(RecipeTextTest, WritesGivenValuesWhoseDefaultsDependOnOtherKeys) {
  const tests::ScratchFolder folder;
  const auto again = [&](const Sets& sets) {
    return load_recipe(folder.write("r.toml", to_toml(load_recipe(std::nullopt, sets))), {});
  };
  EXPECT_EQ(again({"model.path=m", "model.init=random"}).model.init, Init::random);
  EXPECT_EQ(again({"model.path=m"}).model.init, Init::pretrained);
  EXPECT_EQ(again({"model.preset=tiny-gpt2"}).model.init, Init::random);
  EXPECT_EQ(again({"model.path=m", "optimizer.name=lion", "optimizer.betas=[0.9, 0.95]"}).optimizer.betas[1], 0.95);
  EXPECT_EQ(again({"model.path=m", "optimizer.name=lion"}).optimizer.betas[1], 0.99);
}

// Random values of random keys. Whatever a key accepts is written so that it reads back the same, and so is any value
// of the model's config.
class WrittenRecipe : public testing::Test {
 protected:
  std::size_t below(std::size_t n) { return random_() % n; }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  // An entry's name, or a text. It has no dot, which would separate two names.
  // None begins with DEL, which marks numbers that only Python writes (models/files/python.cc).
  const std::string& name() {
    static const std::vector<std::string> kNames = {
        "0",   "1", "neg", "factor", "a b", "\"", "\\", "\n", "a\x7f", "é",      "\xf0\x9f\x98\x80", "#",
        "'''", "=", "[x]", "true",   "-",   "_",  "",   "\t", "\x01",  "\"\"\"", "1979-05-27",       "\r\n"};
    return one_of(kNames);
  }
  std::string json(int depth) {
    static const std::vector<std::string> kPlain = {"0",
                                                    "-1",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "1.5",
                                                    "1e-7",
                                                    "123456789.123456789",
                                                    "1e300",
                                                    "-0.0",
                                                    "0.1",
                                                    "5e-324",
                                                    "true",
                                                    "false"};
    switch (below(depth > 0 ? 4 : 2)) {
      case 0:
        return one_of(kPlain);
      case 1:
        return json_string(name() + "." + name());
      case 2: {
        std::string out;
        for (std::size_t i = below(4); i > 0; --i) out += (out.empty() ? "" : ",") + json(depth - 1);
        return "[" + out + "]";
      }
      default: {
        std::map<std::string, std::string> fields;
        for (std::size_t i = below(4); i > 0; --i) fields[name()] = below(8) == 0 ? "null" : json(depth - 1);
        std::string out;
        for (const auto& [key, value] : fields) out += (out.empty() ? "" : ",") + json_string(key) + ":" + value;
        return "{" + out + "}";
      }
    }
  }
  std::map<std::string, std::string> config() {
    static const std::vector<std::string> kKeys = {"a", "b", "a-b", "id2label", "rope_scaling"},
                                          kInner = {"a", "é", "0", "x y", "\"", "factor"};
    std::map<std::string, std::string> out;
    for (std::size_t i = below(6); i > 0; --i) {
      std::string key = one_of(kKeys);
      for (std::size_t inner = below(3); inner > 0; --inner) key += "." + one_of(kInner);
      out[key] = json(3);
    }
    return out;
  }
  // The resulting model config without nulls, which mean the same as absent keys.
  static std::string overridden(const std::map<std::string, std::string>& keys) {
    models::Config config =
        models::Config::parse(R"({"a": {"a": 1, "z": 2}, "rope_scaling": {"factor": 2.0}})", "a config");
    for (const auto& [key, json] : keys) config.override_key(key, json);
    return tests::canonical(config.to_json());
  }

  std::mt19937 random_{7};
  tests::ScratchFolder folder_;
};

TEST_F(WrittenRecipe, SurvivesARoundTrip) {
  static const std::vector<std::string> kValues = {
      "0",
      "1",
      "2",
      "3",
      "7",
      "64",
      "1048576",
      "9223372036854775807",
      "0.0",
      "0.1",
      "0.25",
      "1.0",
      "1e-30",
      "3e38",
      "true",
      "false",
      "0.30000000000000004",
      "[]",
      "[0, 2, 5]",
      "[0.1, 0.7]",
      "[0.9, 0.95]",
      "[1, 2.5]",
      "\"2GiB\"",
      "\"1-2\"",
      R"("/a b/é \"q\".bin")",
      R"("/t\tn\n\u007f/x'''")",
      R"("/x#y=z\\")",
      R"(["/a/*.bin", "/b"])",
      R"([{files = ["/a", "/b?"], weight = 0.1}, {files = "/c", weight = 3}])",
      "{q_proj = 4}",
      R"({"layers\\.[01]\\..*" = 2, "k_proj" = 64})",
      "\"unix:/tmp/s\"",
      "\"localhost:8080\"",
      "\"off\"",
      "\"auto\"",
      "\"none\"",
      "\"eth0\"",
      "\"eval_f1\""};
  // The values that each key accepts, out of these and of the names in quotation marks in its own description.
  std::vector<std::pair<std::string, std::vector<std::string>>> taken;
  for (const RecipeKey& key : recipe_keys()) {
    std::vector<std::string> values = kValues;
    for (std::size_t at = 0, end; (at = key.allowed.find('"', at)) != key.allowed.npos; at = end + 1) {
      end = key.allowed.find('"', at + 1);
      values.push_back(key.allowed.substr(at, end + 1 - at));
    }
    auto& own = taken.emplace_back(key.name, std::vector<std::string>{}).second;
    std::set<std::string> different;
    for (const std::string& value : values) {
      const Set set = parse_set(key.name + "=" + value);
      const auto read = value_of(*set.table.get("value"));
      Recipe recipe, elsewhere;
      const auto takes = [&] {
        try {
          return read && key.set(recipe, *read, {});
        } catch (const Error&) {  // a regular expression that is none
          return false;
        }
      };
      if (!takes()) continue;
      key.set(elsewhere, *read, "/elsewhere");
      if (key.text(elsewhere) != key.text(recipe)) continue;  // a relative path, which is written as an absolute one
      own.push_back(value);
      different.insert(key.text(recipe));
    }
    EXPECT_GT(different.size(), 1U) << key.name;
  }
  int whole = 0;
  for (int i = 0; i < 3000; ++i) {
    Sets sets = {below(2) == 0 ? "model.preset=tiny-gpt2" : "model.path=/m"};
    for (std::size_t keys = below(12); keys > 0; --keys) {
      const auto& [key, values] = one_of(taken);
      sets.push_back(key + "=" + one_of(values));
    }
    Recipe recipe;
    try {
      recipe = load_recipe(std::nullopt, sets);
    } catch (const Error&) {
      continue;  // keys that contradict each other
    }
    recipe.model.config = config();
    ++whole;
    const std::string text = to_toml(recipe);
    Recipe again;
    ASSERT_NO_THROW(again = load_recipe(folder_.write("r.toml", text), {})) << text;
    for (const RecipeKey& key : recipe_keys())
      if (!key.name.starts_with("report.")) {
        ASSERT_EQ(key.text(again), key.text(recipe)) << key.name << "\n" << text;
      }
    ASSERT_EQ(overridden(again.model.config), overridden(recipe.model.config)) << text;
    ASSERT_EQ(to_toml(load_recipe(folder_.write("s.toml", to_toml(again)), {})), to_toml(again));
  }
  EXPECT_GT(whole, 500);
}

// TOML has no null, and no integer above 2^63 - 1. Such a key is written as the option that sets it.
TEST_F(WrittenRecipe, LeavesValuesThatTomlLacksToAnOption) {
  Recipe recipe = load_recipe(std::nullopt, Sets{"model.preset=tiny-gpt2"});
  recipe.model.config = {{"a", "null"}, {"b", "[1,null]"}, {"c", "18446744073709551615"}, {"d", R"({"x":null,"y":1})"}};
  const std::string text = to_toml(recipe);
  for (const char* line : {"# --set model.config.a = null\n", "# --set model.config.b = [1,null]\n",
                           "# --set model.config.c = 18446744073709551615\n", "\nmodel.config.d = { y = 1 }\n"})
    EXPECT_NE(text.find(line), text.npos) << text;
  EXPECT_EQ(load_recipe(folder_.write("r.toml", text), {}).model.config.size(), 1U);
}

TEST(RecipeTextTest, CanonicalTextIncludesAllSharedSettings) {
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

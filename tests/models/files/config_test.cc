#include "models/files/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigTest, FlattensAndRemembersWhatWasRead) {
  const auto config = Config::parse(R"({"model_type":"llama","hidden_size":128,"rms_norm_eps":1e-5,"use_cache":true,)"
                                    R"("rope_parameters":{"rope_theta":5e5,"rope_type":"default"},"rope_scaling":null,)"
                                    R"("architectures":["LlamaForCausalLM"],"eos_token_id":[1,2]})",
                                    "config.json");
  EXPECT_EQ(config.require_text("model_type"), "llama");
  EXPECT_EQ(config.require_int("hidden_size"), 128);
  EXPECT_EQ(config.number_or("rms_norm_eps", 0), 1e-5);
  EXPECT_EQ(config.number_or("hidden_size", 0), 128);
  EXPECT_TRUE(config.bool_or("use_cache", false));
  EXPECT_EQ(config.spelled({"rope_theta", "rope_parameters.rope_theta"}), "rope_parameters.rope_theta");
  EXPECT_EQ(config.spelled({"absent", "missing"}), "absent");
  EXPECT_EQ(config.require_number("rope_parameters.rope_theta"), 5e5);
  EXPECT_EQ(config.text_or("rope_scaling", "none"), "none");  // null means absent
  EXPECT_FALSE(config.has("rope_scaling"));
  EXPECT_EQ(config.int_or("absent", 3), 3);
  EXPECT_THAT(config.texts("architectures"), ElementsAre("LlamaForCausalLM"));
  EXPECT_THAT(config.unread(), ElementsAre("eos_token_id", "rope_parameters.rope_type"));
  config.ignore({"eos_token_id"});
  EXPECT_THAT(config.unread(), ElementsAre("rope_parameters.rope_type"));
}

TEST(ConfigTest, AStringStandsForAListOfOne) {
  EXPECT_THAT(Config::parse(R"({"architectures":"BertForMaskedLM"})", "a").texts("architectures"),
              ElementsAre("BertForMaskedLM"));
}

TEST(ConfigTest, WrongTypesNameKeyAndSource) {
  auto config = Config::parse(R"({"n_layer":"four","n_head":0,"eps":[1],"tied":1,"type":2})", "a/config.json");
  EXPECT_FAILURE(config.require_int("n_layer"), Exit::corrupt,
                 AllOf(HasSubstr("n_layer of a/config.json"), HasSubstr("\"four\""), HasSubstr("an integer")));
  EXPECT_FAILURE(config.require_int("n_head"), Exit::corrupt, HasSubstr("from 1"));
  EXPECT_FAILURE(config.require_int("absent"), Exit::corrupt, HasSubstr("a/config.json has no absent"));
  EXPECT_FAILURE(config.require_number("absent"), Exit::corrupt, HasSubstr("has no absent"));
  EXPECT_FAILURE(config.number_or("eps", 0), Exit::corrupt, HasSubstr("eps"));
  EXPECT_FAILURE(config.bool_or("tied", false), Exit::corrupt, HasSubstr("true or false"));
  EXPECT_FAILURE(config.text_or("type", ""), Exit::corrupt, HasSubstr("a string"));
  EXPECT_FAILURE(config.texts("eps"), Exit::corrupt, HasSubstr("list of strings"));
  config.override_key("n_layer", "\"five\"");
  EXPECT_FAILURE(config.require_int("n_layer"), Exit::usage, HasSubstr("model.config.n_layer is \"five\""));
}

TEST(ConfigTest, DistinguishesObjectsFromScalars) {
  auto config = Config::parse(R"({"act":{"name":"silu"},"act-1":0,"eps":{"a":{"b":1}},"n":"{}","list":[1],"none":null,)"
                              R"("empty":{},"dotted":{"a.b":1},"object":{"a":1}})",
                              "c.json");
  // If these were treated as absent, each would have its default.
  EXPECT_FAILURE(config.text_or("act", "gelu"), Exit::corrupt, HasSubstr("act of c.json is an object"));
  EXPECT_FAILURE(config.number_or("eps", 1e-5), Exit::corrupt, HasSubstr("expected a number"));
  EXPECT_FAILURE(config.bool_or("eps", true), Exit::corrupt, HasSubstr("true or false"));
  EXPECT_FAILURE(config.int_or("eps", 3), Exit::corrupt, HasSubstr("an integer"));
  EXPECT_FAILURE(config.require_int("eps"), Exit::corrupt, HasSubstr("eps of c.json is an object"));
  EXPECT_FAILURE(config.texts("act"), Exit::corrupt, HasSubstr("a list of strings"));
  EXPECT_FAILURE(config.integers("act"), Exit::corrupt, HasSubstr("a list of integers"));
  for (const char* key : {"n", "list", "act-1", "dotted"})
    EXPECT_FAILURE(config.require_object(key, "an object"), Exit::corrupt,
                   AllOf(HasSubstr(key), HasSubstr("expected an object")));
  for (const char* key : {"object", "empty", "none", "absent"}) config.require_object(key, "an object");
  config.override_key("act", R"({"name":"silu"})");
  EXPECT_FAILURE(config.text_or("act", "gelu"), Exit::usage, HasSubstr("model.config.act is an object"));
  config.override_key("object", R"("{\"a\": 2}")");
  EXPECT_FAILURE(config.require_object("object", "an object"), Exit::usage, HasSubstr("model.config.object is \"{"));
}

TEST(ConfigTest, AcceptsAnIntegerOrAList) {
  const auto config =
      Config::parse(R"({"one":7,"some":[1,2],"none":[],"deep":[[1]],"text":"7","half":[1.5]})", "c.json");
  EXPECT_THAT(config.integers("one"), ElementsAre(7));
  EXPECT_THAT(config.integers("some"), ElementsAre(1, 2));
  EXPECT_THAT(config.integers("none"), ElementsAre());
  EXPECT_THAT(config.integers("absent"), ElementsAre());
  for (const char* key : {"deep", "text", "half"})
    EXPECT_FAILURE(config.integers(key), Exit::corrupt, AllOf(HasSubstr(key), HasSubstr("a list of integers")));
}

TEST(ConfigTest, OverridesReplaceObjectsOrSingleKeys) {
  auto config = Config::parse(R"({"n":1,"rope_scaling":{"factor":2.0,"rope_type":"linear"}})", "config.json");
  config.override_key("n", "4");
  EXPECT_EQ(config.require_int("n"), 4);
  EXPECT_TRUE(config.overridden("n"));
  config.override_key("rope_scaling.factor", "8");
  EXPECT_EQ(config.number_or("rope_scaling.factor", 0), 8);
  EXPECT_EQ(config.text_or("rope_scaling.rope_type", ""), "linear");
  config.override_key("rope_scaling", R"({"type":"dynamic"})");
  EXPECT_FALSE(config.has("rope_scaling.factor"));
  EXPECT_EQ(config.text_or("rope_scaling.type", ""), "dynamic");
  config.override_key("rope_scaling", "null");
  EXPECT_FALSE(config.has("rope_scaling.type"));
  config.override_key("rope_scaling.factor", "2.5");  // this replaces the null
  EXPECT_EQ(Config::parse(config.to_json(), "x").number_or("rope_scaling.factor", 0), 2.5);
  EXPECT_FAILURE(config.override_key("n", "{"), Exit::usage, HasSubstr("model.config.n"));
}

TEST(ConfigTest, WritesWhatItReads) {
  const std::string text = R"({"a":1,"b":1.0,"c":"x\n\"","d":null,"e":[1,{"f":2}],"g":{"h":{"i":true}},"g-":0,"o":{}})";
  const auto config = Config::parse(text, "x");
  const auto again = Config::parse(config.to_json(), "x");
  EXPECT_EQ(config.to_json(), again.to_json());
  EXPECT_THAT(config.to_json(), HasSubstr("\"b\": 1.0"));  // still a float to Python
  EXPECT_THAT(config.to_json(), HasSubstr("\"g\": {\n    \"h\": {\n      \"i\": true\n    }\n  },\n  \"g-\": 0,\n"));
  EXPECT_TRUE(again.bool_or("g.h.i", false));
  EXPECT_EQ(again.text_or("c", ""), "x\n\"");
  EXPECT_THAT(again.to_json(), HasSubstr(R"("e": [1,{"f":2}])"));
}

TEST(ConfigTest, KeepsKeysThatContainADot) {
  const auto config = Config::parse(R"({"transformers.js_config":{"kv_cache_dtype":{"q4.f16":"float16"}},"b.c":null,)"
                                    R"("transformers":{"js_config":1}})",
                                    "c.json");
  EXPECT_THAT(config.unread(), ElementsAre("transformers.js_config"));
  EXPECT_THAT(config.dotted_keys(), ElementsAre("transformers.js_config"));
  const auto again = Config::parse(config.to_json(), "x");
  EXPECT_EQ(again.to_json(), config.to_json());
  EXPECT_THAT(again.to_json(), HasSubstr(R"("transformers.js_config": {"kv_cache_dtype":{"q4.f16":"float16"}})"));
  EXPECT_EQ(again.require_int("transformers.js_config"), 1);
  EXPECT_FAILURE(Config::parse(R"({"a.b":1,"a.b":2})", "c.json"), Exit::corrupt, HasSubstr("a.b twice"));
}

TEST(ConfigTest, ReadsNumbersAsPythonDoes) {
  const auto config =
      Config::parse(R"({"a":NaN,"b":[NaN,-Infinity,1],"c":{"d":Infinity},"e":1e400,"f":123456789012345678901234567890,)"
                    R"("g":9223372036854775807,"text":"NaN, \"Infinity\" \\","h":-1e400 })",
                    "c.json");
  EXPECT_TRUE(std::isnan(config.number_or("a", 0)));
  EXPECT_EQ(config.number_or("c.d", 0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(config.number_or("e", 0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(config.number_or("f", 0), 123456789012345678901234567890.0);
  EXPECT_EQ(config.int_or("g", 0), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(config.number_or("h", 0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(config.text_or("text", ""), R"(NaN, "Infinity" \)");
  EXPECT_EQ(config.json("b"), "[NaN,-Infinity,1]");
  EXPECT_EQ(Config::parse(config.to_json(), "x").to_json(), config.to_json());
  for (const char* bad : {R"({"a":nan})", R"({"a":NaNs})", R"({"a":+1})", R"({"a":1e400x})", R"({"a":--Infinity})"})
    EXPECT_FAILURE(Config::parse(bad, "c.json"), Exit::corrupt, HasSubstr("not JSON"));
}

TEST(ConfigTest, RefusesInvalidConfigs) {
  const auto refused = [](const std::string& text, const std::string& words) {
    EXPECT_FAILURE(Config::parse(text, "c.json"), Exit::corrupt, AllOf(HasSubstr("c.json"), HasSubstr(words)));
  };
  refused("", "not JSON");
  refused("[1]", "not a JSON object");
  refused("{\"a\":1", "not JSON");
  refused("{\"a\":1,\"a\":2}", "a twice, with different values");
  EXPECT_EQ(Config::parse(R"({"a":true,"b":[1, 2],"a":true,"b":[1,2]})", "c.json").json("b"), "[1,2]")
      << "the value is unambiguous";
  refused(R"({"a":1,"a":{"b":2}})", "a twice");
  refused(R"({"a":{"b":1},"a":{"c":2}})", "a twice");
  refused(R"({"a":{"b":{"c":1},"b":{"d":2}}})", "a.b twice");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "{\"a\":";
  refused(deep + "1" + std::string(100, '}'), "nested deeper");
  refused("{\"a\":\"" + std::string(2 << 20, 'x') + "\"}", "1 MiB");
  EXPECT_FAILURE(Config::read("/nonexistent"), Exit::usage, HasSubstr("config.json"));
}

TEST(ConfigTest, ReadsFromAFolder) {
  const tests::ScratchFolder folder;
  folder.write("config.json", R"({"vocab_size":7})");
  EXPECT_EQ(Config::read(folder.path()).require_int("vocab_size"), 7);
}

}  // namespace
}  // namespace strata::models

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "models/families/llama.h"
#include "tests/failure.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kLlamaShapeSeq = 8192;

// A config with the required sizes, and `more` keys.
LlamaShape shape(const std::string& family, const std::string& more = "") {
  return read_llama_shape(
      Config::parse(R"({"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,)"
                    R"("intermediate_size":48,"num_hidden_layers":2,"vocab_size":50,"max_position_embeddings":9000,)"
                    R"("model_type":")" +
                        family + "\"" + more + "}",
                    "config.json"),
      kLlamaShapeSeq);
}

// These are the defaults of `MistralConfig()`, `Qwen2Config()` and so on in transformers 5.
TEST(LlamaShapeTest, AbsentKeysHaveTransformersDefaults) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    SCOPED_TRACE(family);
    const LlamaShape s = shape(family);
    EXPECT_EQ(s.eps, 1e-6f);
    EXPECT_EQ(s.deviation, 0.02f);
    EXPECT_EQ(s.attention_dropout, 0.0f);
    EXPECT_EQ(s.rotary.theta, 10000.0);
    EXPECT_EQ(s.rotary.factor, 1.0);
    EXPECT_FALSE(s.tied || s.output_bias || s.mlp_bias);
    EXPECT_EQ(s.qkv_bias, family == std::string("qwen2"));
    EXPECT_EQ(s.qk_norm, family == std::string("qwen3"));
    EXPECT_THAT(s.windows, ElementsAre(family == std::string("mistral") ? 4096u : 0u,
                                       family == std::string("mistral") ? 4096u : 0u));
  }
}

TEST(LlamaShapeTest, TheFamilyDeterminesTheWindow) {
  EXPECT_THAT(shape("mistral", R"(,"sliding_window":7)").windows, ElementsAre(7u, 7u));
  EXPECT_THAT(shape("mistral", R"(,"sliding_window":null)").windows, ElementsAre(0u, 0u));
  EXPECT_THAT(shape("mistral", R"(,"sliding_window":8191)").windows, ElementsAre(8191u, 8191u));
  EXPECT_THAT(shape("mistral", R"(,"sliding_window":8192)").windows, ElementsAre(0u, 0u));  // nothing lies outside it
  // Llama ignores these keys. Qwen's window is off unless use_sliding_window says otherwise.
  for (const char* more : {"", R"(,"layer_types":["full_attention","sliding_attention"])"})
    EXPECT_THAT(shape("llama", std::string(R"(,"sliding_window":7,"use_sliding_window":true)") + more).windows,
                ElementsAre(0u, 0u));
  EXPECT_THAT(shape("qwen2", R"(,"sliding_window":7,"max_window_layers":0)").windows, ElementsAre(0u, 0u));
  EXPECT_THAT(shape("qwen2", R"(,"sliding_window":null,"use_sliding_window":true,"max_window_layers":0)").windows,
              ElementsAre(0u, 0u));
}

TEST(LlamaShapeTest, QwensWindowAppliesToItsLastLayers) {
  for (const char* family : {"qwen2", "qwen3"}) {
    const auto windows = [&](const std::string& more) {
      return shape(family, R"(,"use_sliding_window":true,"sliding_window":7)" + more).windows;
    };
    EXPECT_THAT(windows(""), ElementsAre(0u, 0u)) << "max_window_layers is 28 if absent";
    EXPECT_THAT(windows(R"(,"max_window_layers":2)"), ElementsAre(0u, 0u));
    EXPECT_THAT(windows(R"(,"max_window_layers":1)"), ElementsAre(0u, 7u));
    EXPECT_THAT(windows(R"(,"max_window_layers":0)"), ElementsAre(7u, 7u));
    EXPECT_THAT(shape(family, R"(,"use_sliding_window":true,"max_window_layers":0)").windows,
                ElementsAre(4096u, 4096u));
    EXPECT_THAT(shape(family, R"(,"use_sliding_window":true,"max_window_layers":0,"sliding_window":8192)").windows,
                ElementsAre(0u, 0u));
  }
}

// If it were treated as absent, positions would stay unscaled.
TEST(LlamaShapeTest, RefusesAScalingThatIsNotAnObject) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    for (const char* value : {R"("{\"rope_type\":\"linear\",\"factor\":2.0}")", R"(["linear",2.0])", "2.0", "true"})
      EXPECT_FAILURE(shape("llama", fmt::format(R"(,"{}":{})", key, value)), Exit::corrupt,
                     AllOf(HasSubstr(key), HasSubstr("expected an object")));
    for (const char* value : {"null", "{}"})
      EXPECT_EQ(shape("llama", fmt::format(R"(,"{}":{})", key, value)).rotary.factor, 1.0);
    EXPECT_FAILURE(shape("llama", fmt::format(R"(,"{}":{{"rope_type":"linear","factor":2.0,"type":3}})", key)),
                   Exit::corrupt, HasSubstr(".type of"));
  }
}

TEST(LlamaShapeTest, LayerTypesSelectTheLayersWithAWindow) {
  const std::string mixed = R"(,"sliding_window":7,"layer_types":["sliding_attention","full_attention"])";
  EXPECT_THAT(shape("mistral", mixed).windows, ElementsAre(7u, 0u));
  EXPECT_THAT(shape("mistral", R"(,"layer_types":["full_attention","full_attention"])").windows, ElementsAre(0u, 0u));
  EXPECT_THAT(shape("mistral", R"(,"sliding_window":7,"layer_types":null)").windows, ElementsAre(7u, 7u));
  for (const char* family : {"qwen2", "qwen3"}) {
    EXPECT_THAT(shape(family, mixed + R"(,"use_sliding_window":true)").windows, ElementsAre(7u, 0u));
    EXPECT_THAT(shape(family, R"(,"use_sliding_window":true,"max_window_layers":0,)"
                              R"("layer_types":["full_attention","attention"])")
                    .windows,
                ElementsAre(0u, 0u));
    EXPECT_FAILURE(shape(family, mixed), Exit::usage, AllOf(HasSubstr("layer_types"), HasSubstr("use_sliding_window")));
  }
  EXPECT_FAILURE(shape("mistral", R"(,"sliding_window":null,"layer_types":["sliding_attention","full_attention"])"),
                 Exit::usage, AllOf(HasSubstr("layer_types"), HasSubstr("sliding_window is null")));
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"})
    EXPECT_FAILURE(shape(family, R"(,"layer_types":["full_attention"])"), Exit::usage,
                   AllOf(HasSubstr("layer_types"), HasSubstr("1 entry, and num_hidden_layers is 2")));
}

TEST(LlamaShapeTest, RefusesUnknownLayerTypes) {
  EXPECT_FAILURE(shape("qwen3", R"(,"layer_types":["full_attention","linear_attention"])"), Exit::usage,
                 AllOf(HasSubstr("layer_types"), HasSubstr("\"linear_attention\"")));
  for (const char* value : {"3", "[1]", R"({"a":"full_attention"})"})
    EXPECT_FAILURE(shape("qwen3", fmt::format(R"(,"layer_types":{})", value)), Exit::corrupt,
                   AllOf(HasSubstr("layer_types"), HasSubstr("a list of strings")));
  for (const char* family : {"llama", "mistral", "qwen2"})
    EXPECT_FAILURE(shape(family, R"(,"use_sliding_window":"no")"), Exit::corrupt, HasSubstr("use_sliding_window"));
}

TEST(LlamaShapeTest, RefusesAScalingByZero) {
  for (const char* kind : {"linear", "llama3"})
    EXPECT_FAILURE(shape("llama", std::string(R"(,"rope_scaling":{"rope_type":")") + kind +
                                      R"(","factor":0,"low_freq_factor":1,"high_freq_factor":4})"),
                   Exit::usage, HasSubstr("rope_scaling.factor"));
}

}  // namespace
}  // namespace strata::models

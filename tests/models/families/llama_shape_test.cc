#include "models/families/llama_shape.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "tests/failure.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kSeq = 8192;

// The sizes that every config has to give, and `more` of its keys.
LlamaShape shape(const std::string& family, const std::string& more = "") {
  return read_llama_shape(
      Config::parse(R"({"hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,)"
                    R"("intermediate_size":48,"num_hidden_layers":2,"vocab_size":50,"max_position_embeddings":9000,)"
                    R"("model_type":")" +
                        family + "\"" + more + "}",
                    "config.json"),
      kSeq);
}

// As `MistralConfig()`, `Qwen2Config()` ... of transformers 5 have them.
TEST(LlamaShapeTest, AnAbsentKeyMeansWhatTransformersMeans) {
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
    EXPECT_EQ(s.window, family == std::string("mistral") ? 4096u : 0u);
  }
}

TEST(LlamaShapeTest, TheWindowIsTheFamilys) {
  EXPECT_EQ(shape("mistral", R"(,"sliding_window":7)").window, 7u);
  EXPECT_EQ(shape("mistral", R"(,"sliding_window":null)").window, 0u);
  EXPECT_EQ(shape("mistral", R"(,"sliding_window":8191)").window, 8191u);
  EXPECT_EQ(shape("mistral", R"(,"sliding_window":8192)").window, 0u);  // nothing lies outside it
  // Llama does not know the keys; Qwen's is off where use_sliding_window does not say otherwise.
  EXPECT_EQ(shape("llama", R"(,"sliding_window":7,"use_sliding_window":true)").window, 0u);
  EXPECT_EQ(shape("qwen2", R"(,"sliding_window":7)").window, 0u);
  EXPECT_EQ(shape("qwen2", R"(,"sliding_window":null,"use_sliding_window":true)").window, 0u);
  for (const char* family : {"qwen2", "qwen3"})
    EXPECT_FAILURE(shape(family, R"(,"use_sliding_window":true)"), Exit::usage,
                   AllOf(HasSubstr("use_sliding_window"), HasSubstr("a window of 4096 below data.seq_len=8192")));
  for (const char* family : {"qwen2", "qwen3"}) {
    EXPECT_FAILURE(shape(family, R"(,"use_sliding_window":true,"sliding_window":8191)"), Exit::usage,
                   HasSubstr("a window of 8191 below data.seq_len=8192"));
    EXPECT_EQ(shape(family, R"(,"use_sliding_window":true,"sliding_window":8192)").window, 0u);
  }
}

// Taken for absent, it would leave the positions unscaled.
TEST(LlamaShapeTest, AScalingThatIsNoObjectIsRefused) {
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

TEST(LlamaShapeTest, LayerTypesAreKnown) {
  EXPECT_EQ(shape("qwen3", R"(,"layer_types":["full_attention","sliding_attention"])").window, 0u);
  EXPECT_FAILURE(shape("qwen3", R"(,"layer_types":["full_attention","linear_attention"])"), Exit::usage,
                 AllOf(HasSubstr("layer_types"), HasSubstr("\"linear_attention\"")));
  for (const char* value : {"3", "\"full_attention\"", "[1]", R"({"a":"full_attention"})"})
    EXPECT_FAILURE(shape("qwen3", fmt::format(R"(,"layer_types":{})", value)), Exit::corrupt,
                   AllOf(HasSubstr("layer_types"), HasSubstr("a list of strings")));
  for (const char* family : {"llama", "mistral", "qwen2"})
    EXPECT_FAILURE(shape(family, R"(,"use_sliding_window":"no")"), Exit::corrupt, HasSubstr("use_sliding_window"));
}

TEST(LlamaShapeTest, AScalingByNothingIsRefused) {
  for (const char* kind : {"linear", "llama3"})
    EXPECT_FAILURE(shape("llama", std::string(R"(,"rope_scaling":{"rope_type":")") + kind +
                                      R"(","factor":0,"low_freq_factor":1,"high_freq_factor":4})"),
                   Exit::usage, HasSubstr("rope_scaling.factor"));
}

}  // namespace
}  // namespace strata::models

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <ostream>
#include <string>

#include "models/files/config.h"
#include "models/model.h"
#include "tests/models/block_checks.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using device::DType;
using testing::describe;
using testing::Doubles;
using ::testing::ElementsAre;
using testing::make;
using testing::Mask;
using testing::rmsnorm;
using testing::rotate;
using testing::shared_by;
using testing::sum;
using testing::tiny;
using testing::UnitRunner;
using testing::Weights;

struct LlamaShape {
  std::string name, model_type;
  std::size_t hidden, heads, kv_heads, head_dim, inner;
  std::size_t window = 0;
  float dropout = 0;
  bool attention_bias = false, mlp_bias = false;
  std::string more = {};  // keys of config.json, each with a comma before it
  std::size_t batch = 2, seq = 11;

  std::string config() const {
    return fmt::format(
        R"({{"model_type":"{}","hidden_size":{},"num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},
        "intermediate_size":{},"num_hidden_layers":2,"max_position_embeddings":64,"vocab_size":16,"rms_norm_eps":0.03,
        "rope_theta":100.0,"attention_dropout":{},"attention_bias":{},"mlp_bias":{},"sliding_window":{}{}}})",
        model_type, hidden, heads, kv_heads, head_dim, inner, dropout, attention_bias, mlp_bias,
        window ? std::to_string(window) : "null", more);
  }
};
constexpr double kLlamaEps = 0.03;  // large enough to show whether it is used
constexpr std::size_t kLlamaLayer = 1;
const std::string kLlamaPrefix = "model.layers.1.";

void PrintTo(const LlamaShape& s, std::ostream* out) {
  *out << s.name;
}

// LlamaBlock `kLlamaLayer` of a model of two layers.
struct LlamaBlock {
  LlamaBlock(const LlamaShape& s, DType dtype, int threads = 1)
      : run{s.batch, s.seq, dtype, threads},
        model(make_model(Config::parse(s.config(), "config.json"), run)),
        runner(*model->units[1 + kLlamaLayer], run, s.hidden, model.get()) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Model> model;
  UnitRunner runner;
};

Doubles reference(const LlamaShape& s, const UnitRunner& runner, const Weights& w, const Doubles& x) {
  const auto or_none = [&](const char* name) { return w.contains(name) ? w.find(name)->second : Doubles{}; };
  const auto project = [&](const Doubles& from, std::size_t in, const std::string& name) {
    return testing::linear(from, in, w.at(name + ".weight"), or_none((name + ".bias").c_str()), false);
  };
  Doubles frequencies;
  for (std::size_t i = 0; i < s.head_dim; i += 2)
    frequencies.push_back(std::pow(100.0, -static_cast<double>(i) / static_cast<double>(s.head_dim)));

  const Doubles normed = rmsnorm(x, w.at("input_layernorm.weight"), kLlamaEps);
  Doubles q = project(normed, s.hidden, "self_attn.q_proj"), k = project(normed, s.hidden, "self_attn.k_proj");
  if (s.model_type == "qwen3") {
    q = rmsnorm(q, w.at("self_attn.q_norm.weight"), kLlamaEps);
    k = rmsnorm(k, w.at("self_attn.k_norm.weight"), kLlamaEps);
  }
  const Doubles mixed =
      attention({s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.window}, rotate(q, runner.positions, frequencies),
                rotate(k, runner.positions, frequencies), project(normed, s.hidden, "self_attn.v_proj"),
                Mask(runner, s.dropout, 4 * kLlamaLayer + 4));
  const Doubles middle = sum(x, project(mixed, s.heads * s.head_dim, "self_attn.o_proj"));
  const Doubles normed2 = rmsnorm(middle, w.at("post_attention_layernorm.weight"), kLlamaEps);
  Doubles inner = project(normed2, s.hidden, "mlp.gate_proj");
  const Doubles up = project(normed2, s.hidden, "mlp.up_proj");
  for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = testing::silu(inner[i]) * up[i];
  return sum(middle, project(inner, s.inner, "mlp.down_proj"));
}

const LlamaShape kShapes[] = {
    {"plain", "llama", 32, 4, 4, 8, 64},
    {"grouped queries", "llama", 32, 4, 2, 8, 64},
    // There are gaps after every parameter, and so several products. The heads together are wider than the residual
    // stream.
    {"odd sizes", "llama", 20, 6, 3, 6, 27},
    {"attention bias", "llama", 24, 4, 2, 6, 40, 0, 0, true},
    {"mlp bias", "llama", 24, 4, 2, 6, 43, 0, 0, false, true},
    {"dropout", "llama", 24, 4, 2, 6, 40, 0, 0.25f},
    {"mistral", "mistral", 24, 4, 1, 6, 40, 4},
    {"mistral, window of two", "mistral", 24, 4, 2, 6, 40, 2},
    {"mistral, window as long as the sequence", "mistral", 24, 4, 2, 6, 40, 11},
    {"mistral, a window of its second layer", "mistral", 24, 4, 2, 6, 40, 4, 0, false, false,
     R"(,"layer_types":["full_attention","sliding_attention"])"},
    {"qwen2", "qwen2", 30, 5, 1, 6, 40},
    {"qwen2, a window of its second layer", "qwen2", 30, 5, 1, 6, 40, 3, 0, false, false,
     R"(,"use_sliding_window":true,"max_window_layers":1)"},
    {"qwen3", "qwen3", 32, 4, 2, 16, 40},
    {"qwen3, narrow heads, bias, dropout", "qwen3", 24, 4, 2, 4, 40, 0, 0.1f, true},
};

class LlamaTest : public ::testing::TestWithParam<LlamaShape> {};

TEST_P(LlamaTest, BlockMatchesTheReference) {
  LlamaBlock block(GetParam(), DType::fp32);
  expect_block_matches(block.runner, kLlamaPrefix,
                       [&](const Weights& w, const Doubles& x) { return reference(GetParam(), block.runner, w, x); });
}

TEST_P(LlamaTest, BlockIsIndependentOfThePlan) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    testing::expect_block_is_independent_of_the_plan(
        [&](int threads) { return LlamaBlock(GetParam(), dtype, threads); });
}

TEST_P(LlamaTest, SixteenBitErrorsAreWithinTheirFormat) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    LlamaBlock narrow(GetParam(), dtype), wide(GetParam(), DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 12);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LlamaTest, ::testing::ValuesIn(kShapes));

TEST(LlamaTest, HasTheParametersOfTransformers) {
  for (const char* family : {"llama", "mistral"}) {
    const auto model = make(tiny(family));
    ASSERT_EQ(model->units.size(), 4u);
    EXPECT_EQ(model->family, family);
    EXPECT_THAT(describe(*model->units[0]), ElementsAre("model.embed_tokens.weight 50x32 normal(0.02) decay"));
    EXPECT_THAT(describe(*model->units[2]),
                ElementsAre("model.layers.1.input_layernorm.weight 32 1 -",
                            "model.layers.1.self_attn.q_proj.weight 32x32 normal(0.02) decay",
                            "model.layers.1.self_attn.k_proj.weight 16x32 normal(0.02) decay",
                            "model.layers.1.self_attn.v_proj.weight 16x32 normal(0.02) decay",
                            "model.layers.1.self_attn.o_proj.weight 32x32 normal(0.02) decay",
                            "model.layers.1.post_attention_layernorm.weight 32 1 -",
                            "model.layers.1.mlp.gate_proj.weight 48x32 normal(0.02) decay",
                            "model.layers.1.mlp.up_proj.weight 48x32 normal(0.02) decay",
                            "model.layers.1.mlp.down_proj.weight 32x48 normal(0.02) decay"));
    EXPECT_THAT(describe(*model->units[3]),
                ElementsAre("model.norm.weight 32 1 -", "lm_head.weight 50x32 normal(0.02) decay"));
    EXPECT_EQ(shared_by(model->loss_unit()), "none");
    EXPECT_EQ(model->optional_prefix, "model.");
  }
  const auto tied = make(tiny("llama"), {{"tie_word_embeddings", "true"}});
  EXPECT_EQ(shared_by(tied->loss_unit()), "lm_head.weight: 0 0 [0, 4096)");
  EXPECT_THAT(describe(*tied->units.back()), ElementsAre("model.norm.weight 32 1 -"));
}

std::vector<std::string> attention_names(const Model& model) {
  std::vector<std::string> out;
  for (const std::string& p : describe(*model.units[1]))
    if (p.starts_with("model.layers.0.self_attn.")) out.push_back(p.substr(25));
  return out;
}

TEST(LlamaTest, Qwen2HasBiasesOfQueriesKeysAndValues) {
  EXPECT_THAT(attention_names(*make(tiny("qwen2"))),
              ElementsAre("q_proj.weight 32x32 normal(0.02) decay", "k_proj.weight 16x32 normal(0.02) decay",
                          "v_proj.weight 16x32 normal(0.02) decay", "q_proj.bias 32 0 -", "k_proj.bias 16 0 -",
                          "v_proj.bias 16 0 -", "o_proj.weight 32x32 normal(0.02) decay"));
}

TEST(LlamaTest, Qwen3HasNormsOfQueriesAndKeys) {
  EXPECT_THAT(attention_names(*make(tiny("qwen3"), {{"head_dim", "12"}})),
              ElementsAre("q_proj.weight 48x32 normal(0.02) decay", "k_proj.weight 24x32 normal(0.02) decay",
                          "v_proj.weight 24x32 normal(0.02) decay", "q_norm.weight 12 1 -", "k_norm.weight 12 1 -",
                          "o_proj.weight 32x48 normal(0.02) decay"));
}

TEST(LlamaTest, TheConfigDeterminesBiases) {
  const auto model = make(tiny("llama"), {{"attention_bias", "true"}, {"mlp_bias", "true"}});
  std::vector<std::string> biases;
  for (const std::string& p : describe(*model->units[1]))
    if (p.find(".bias ") != std::string::npos) biases.push_back(p.substr(15));
  EXPECT_THAT(biases, ElementsAre("self_attn.q_proj.bias 32 0 -", "self_attn.k_proj.bias 16 0 -",
                                  "self_attn.v_proj.bias 16 0 -", "self_attn.o_proj.bias 32 0 -",
                                  "mlp.gate_proj.bias 48 0 -", "mlp.up_proj.bias 48 0 -", "mlp.down_proj.bias 32 0 -"));
}

}  // namespace
}  // namespace strata::models

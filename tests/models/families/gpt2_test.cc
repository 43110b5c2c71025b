#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "models/files/config.h"
#include "models/files/quantisation.h"
#include "models/model.h"
#include "tests/failure.h"
#include "tests/models/block_checks.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using device::DType;
using testing::describe;
using testing::Doubles;
using ::testing::ElementsAre;
using testing::linear;
using testing::make;
using testing::Mask;
using testing::shared_by;
using testing::sum;
using testing::tiny;
using testing::UnitRunner;
using testing::Weights;

struct Gpt2Shape {
  std::size_t hidden, heads, inner;
  float attention_dropout = 0, residual_dropout = 0;
  std::size_t batch = 2, seq = 11;
  const char* activation = "gelu_new";
};
constexpr double kGpt2Eps = 0.03;  // large enough to show whether it is used
constexpr std::size_t kLayer = 1;

// Block `kLayer` of a model of two layers.
struct Block {
  Block(const Gpt2Shape& s, DType dtype, int threads = 1)
      : run{s.batch, s.seq, dtype, threads},
        model(make_model(Config::parse(fmt::format(R"({{"model_type":"gpt2","n_embd":{},"n_head":{},"n_inner":{},
                 "n_layer":2,"n_positions":64,"vocab_size":16,"layer_norm_epsilon":{},"attn_pdrop":{},
                 "resid_pdrop":{},"embd_pdrop":0,"activation_function":"{}"}})",
                                                   s.hidden, s.heads, s.inner, kGpt2Eps, s.attention_dropout,
                                                   s.residual_dropout, s.activation),
                                       "config.json"),
                         run)),
        runner(*model->units[1 + kLayer], run, s.hidden, model.get()) {}
  UnitRunner* operator->() { return &runner; }

  RunShape run;
  std::unique_ptr<Model> model;
  UnitRunner runner;
};
const std::string kGpt2Prefix = "transformer.h.1.";

Doubles reference(const Gpt2Shape& s, const UnitRunner& runner, const Weights& w, const Doubles& x) {
  const std::size_t d = s.hidden;
  // Each place in each layer has its own stream of random numbers, which differs from the embedding's.
  const auto mask = [&](float p, std::uint32_t place) { return Mask(runner, p, kLayer * 4 + 4 + place); };
  const Doubles packed = linear(testing::layernorm(x, w.at("ln_1.weight"), w.at("ln_1.bias"), kGpt2Eps), d,
                                w.at("attn.c_attn.weight"), w.at("attn.c_attn.bias"), true);
  Doubles part[3];
  for (std::size_t i = 0; i < packed.size(); ++i) part[i / d % 3].push_back(packed[i]);
  const Doubles mixed = attention({s.batch, s.seq, s.heads, s.heads, d / s.heads}, part[0], part[1], part[2],
                                  mask(s.attention_dropout, 0));
  const Doubles attended = linear(mixed, d, w.at("attn.c_proj.weight"), w.at("attn.c_proj.bias"), true);
  const Doubles middle = sum(x, dropped(attended, mask(s.residual_dropout, 1)));
  Doubles inner = linear(testing::layernorm(middle, w.at("ln_2.weight"), w.at("ln_2.bias"), kGpt2Eps), d,
                         w.at("mlp.c_fc.weight"), w.at("mlp.c_fc.bias"), true);
  const bool exact = std::string_view(s.activation) == "gelu";
  for (double& v : inner) v = exact ? testing::gelu_erf(v) : testing::gelu_tanh(v);
  const Doubles down = linear(inner, s.inner, w.at("mlp.c_proj.weight"), w.at("mlp.c_proj.bias"), true);
  return sum(middle, dropped(down, mask(s.residual_dropout, 2)));
}

void expect_matches(const Gpt2Shape& s) {
  Block block(s, DType::fp32);
  expect_block_matches(block.runner, kGpt2Prefix,
                       [&](const Weights& w, const Doubles& x) { return reference(s, block.runner, w, x); });
}

TEST(Gpt2Test, BlockMatchesTheReference) {
  expect_matches({.hidden = 32, .heads = 4, .inner = 128});
}

// There are gaps after every parameter, and the inner width is not 4 times the hidden one.
TEST(Gpt2Test, BlockOfOddSizesMatchesTheReference) {
  expect_matches({.hidden = 30, .heads = 3, .inner = 50});
}

// Cerebras-GPT has this activation.
TEST(Gpt2Test, BlockWithTheExactGeluMatchesTheReference) {
  expect_matches({.hidden = 32, .heads = 4, .inner = 128, .activation = "gelu"});
}

TEST(Gpt2Test, DropoutMatchesTheReferenceForwardAndBackward) {
  expect_matches({.hidden = 24, .heads = 2, .inner = 40, .attention_dropout = 0.3f});
  expect_matches({.hidden = 24, .heads = 2, .inner = 40, .residual_dropout = 0.2f});
  expect_matches({.hidden = 24, .heads = 2, .inner = 40, .attention_dropout = 0.4f, .residual_dropout = 0.1f});
}

TEST(Gpt2Test, DropoutDependsOnTheMicroBatch) {
  Block block({.hidden = 24, .heads = 2, .inner = 40, .residual_dropout = 0.2f}, DType::fp32);
  block->forward();
  const auto first = block->y.bits();
  block->micro_batch = 4;
  block->forward();
  EXPECT_FALSE(block->y.bits() == first);
  // Micro-batch 4 of a step that starts at 39 is micro-batch 3 of one that starts at 40.
  block->scalars.first_micro_batch = 39;
  block->forward();
  EXPECT_TRUE(block->y.bits() == first);
}

TEST(Gpt2Test, BlockIsIndependentOfThePlan) {
  for (const float p : {0.0f, 0.2f}) {
    const Gpt2Shape shape{
        .hidden = 64, .heads = 4, .inner = 256, .attention_dropout = p, .residual_dropout = p, .seq = 40};
    testing::expect_block_is_independent_of_the_plan([&](int threads) { return Block(shape, DType::fp32, threads); });
    testing::expect_block_is_independent_of_the_plan([&](int threads) { return Block(shape, DType::bf16, threads); });
  }
}

TEST(Gpt2Test, SixteenBitErrorsAreWithinTheirFormat) {
  const Gpt2Shape shape{.hidden = 48, .heads = 3, .inner = 96, .attention_dropout = 0.1f, .residual_dropout = 0.1f};
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Block narrow(shape, dtype), wide(shape, DType::fp32);
    testing::expect_block_within_format(narrow.runner, wide.runner, dtype, 12);
  }
}

TEST(Gpt2Test, HasTheParametersOfTransformers) {
  const auto model = make(tiny("gpt2"));
  ASSERT_EQ(model->units.size(), 4u);
  EXPECT_THAT(describe(*model->units[0]), ElementsAre("transformer.wte.weight 50x32 normal(0.02) decay",
                                                      "transformer.wpe.weight 24x32 normal(0.02) decay"));
  // Projections onto the residual stream start at 0.02 / sqrt(2 * 2 layers).
  EXPECT_THAT(
      describe(*model->units[2]),
      ElementsAre(
          "transformer.h.1.ln_1.weight 32 1 -", "transformer.h.1.ln_1.bias 32 0 -",
          "transformer.h.1.attn.c_attn.weight 32x96 normal(0.02) decay", "transformer.h.1.attn.c_attn.bias 96 0 -",
          "transformer.h.1.attn.c_proj.weight 32x32 normal(0.01) decay", "transformer.h.1.attn.c_proj.bias 32 0 -",
          "transformer.h.1.ln_2.weight 32 1 -", "transformer.h.1.ln_2.bias 32 0 -",
          "transformer.h.1.mlp.c_fc.weight 32x128 normal(0.02) decay", "transformer.h.1.mlp.c_fc.bias 128 0 -",
          "transformer.h.1.mlp.c_proj.weight 128x32 normal(0.01) decay", "transformer.h.1.mlp.c_proj.bias 32 0 -"));
  EXPECT_THAT(describe(*model->units[3]),
              ElementsAre("transformer.ln_f.weight 32 1 -", "transformer.ln_f.bias 32 0 -"));
  EXPECT_EQ(shared_by(model->loss_unit()), "lm_head.weight: 0 0 [0, 4096)");
  EXPECT_EQ(model->optional_prefix, "transformer.");

  const auto other =
      make(tiny("gpt2"),
           {{"tie_word_embeddings", "false"}, {"n_inner", "40"}, {"n_layer", "8"}, {"initializer_range", "0.5"}});
  EXPECT_EQ(shared_by(other->loss_unit()), "none");
  EXPECT_THAT(describe(*other->units.back()),
              ElementsAre("transformer.ln_f.weight 32 1 -", "transformer.ln_f.bias 32 0 -",
                          "lm_head.weight 50x32 normal(0.5) decay"));
  EXPECT_EQ(describe(*other->units[1])[8], "transformer.h.0.mlp.c_fc.weight 32x40 normal(0.5) decay");
  EXPECT_EQ(describe(*other->units[1])[10], "transformer.h.0.mlp.c_proj.weight 40x32 normal(0.125) decay");
}

// bitsandbytes quantises either all of them, transposed, or none.
TEST(Gpt2Test, MatricesIn4BitsAreTransposed) {
  const auto in_4_bits = [](const char* skipped) {
    return make(tiny("gpt2"), {{"quantization_config", fmt::format(R"({{"quant_method":"bitsandbytes",
        "load_in_4bit":true,"bnb_4bit_quant_type":"nf4","llm_int8_skip_modules":[{}]}})",
                                                                   skipped)}});
  };
  const auto model = in_4_bits("\"lm_head\"");
  EXPECT_EQ(model->units[1]->parameters()[2].shape, (std::vector<std::int64_t>{96, 32})) << "c_attn";
  EXPECT_FALSE(model->units[1]->linear_layers()[0].input_major);
  EXPECT_FAILURE(in_4_bits("\"h.1.mlp.c_fc\""), Exit::usage,
                 ::testing::HasSubstr("leaves transformer.h.1.mlp.c_fc.weight out of 4 bits"));
}

// The rule is that of should_convert_module() in transformers 5.24.
TEST(QuantisationTest, SkippedModulesEndAtADot) {
  const auto skips = [](const char* module, const char* name) {
    const std::vector<std::string> modules = {module};
    return lies_in(modules, name);
  };
  EXPECT_TRUE(skips("model.layers.1", "model.layers.1.mlp.up_proj.weight"));
  EXPECT_FALSE(skips("model.layers.1", "model.layers.10.mlp.up_proj.weight"));
  EXPECT_TRUE(skips("model.layers.1.", "model.layers.1.mlp.up_proj.weight"));
  EXPECT_TRUE(skips("up_proj", "model.layers.1.mlp.up_proj.weight"));
  EXPECT_TRUE(skips("model.layers.*.mlp", "model.layers.10.mlp.up_proj.weight"));
  EXPECT_FALSE(skips("model.layers.*.mlp", "model.layers.10.mlp_2.up_proj.weight"));
  EXPECT_TRUE(skips("model.layers.(0|11)", "model.layers.11.mlp.up_proj.weight"));
  EXPECT_FALSE(skips("model.layers.(0|1)", "model.layers.11.mlp.up_proj.weight"));
}

TEST(QuantisationTest, RefusesUnsupportedSyntaxOfSkippedModules) {
  const auto read = [](const std::string& pattern) {
    return quantisation_of(Config::parse(R"({"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,)"
                                         R"("bnb_4bit_quant_type":"nf4","llm_int8_skip_modules":["lm_head",")" +
                                             pattern + "\"]}}",
                                         "config.json"));
  };
  EXPECT_EQ(read("model.layers.(0|11)")->skipped[1], "model.layers.(0|11)");
  EXPECT_FAILURE(read("model.layers.*+"), Exit::usage,
                 ::testing::AllOf(::testing::HasSubstr("llm_int8_skip_modules of config.json"),
                                  ::testing::HasSubstr("possessive"), ::testing::HasSubstr("by their names")));
  EXPECT_FAILURE(read("model.("), Exit::usage, ::testing::HasSubstr("not a valid regular expression"));
  EXPECT_FAILURE(read(std::string(4096, 'a') + "*"), Exit::usage, ::testing::HasSubstr("is too large"));
}

}  // namespace
}  // namespace strata::models

#include "models/families/families.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/files/presets.h"
#include "tests/failure.h"

namespace strata::models {
namespace {

using device::DType;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t kSeq = 16;

using Overrides = std::vector<std::pair<std::string, std::string>>;  // key, JSON

std::string tiny(const std::string& family) {
  if (family == "gpt2")
    return R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":2,"n_positions":24,"vocab_size":50})";
  if (family == "distilbert")
    return R"({"model_type":"distilbert","dim":32,"n_heads":4,"hidden_dim":48,"n_layers":2,
      "max_position_embeddings":24,"vocab_size":50})";
  if (family == "bert" || family == "roberta" || family == "xlm-roberta")
    return fmt::format(R"({{"model_type":"{}","hidden_size":32,"num_attention_heads":4,"intermediate_size":48,
      "num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50}})",
                       family);
  return fmt::format(R"({{"model_type":"{}","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
      "head_dim":8,"intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50}})",
                     family);
}
std::unique_ptr<Model> make(const std::string& json, const Overrides& overrides = {}, std::size_t seq = kSeq) {
  Config config = Config::parse(json, "config.json");
  for (const auto& [key, value] : overrides) config.override_key(key, value);
  return make_model(config, {1, seq, DType::fp32, 1});
}

// What a model is, apart from its operations: every parameter and every constant.
std::vector<std::string> describe(const Unit& unit) {
  std::vector<std::string> out;
  for (const Parameter& p : unit.parameters()) {
    std::string shape;
    for (const std::int64_t n : p.shape) shape += fmt::format("{}{}", shape.empty() ? "" : "x", n);
    out.push_back(fmt::format(
        "{} {} {} {}", p.name, shape,
        p.init.deviation > 0 ? fmt::format("normal({:.5g})", p.init.deviation) : fmt::format("{}", p.init.constant),
        p.decay ? "decay" : "-"));
  }
  return out;
}
std::vector<float> constants(const Model& model) {
  std::vector<float> out(model.constants_bytes / sizeof(float));
  model.fill_constants(reinterpret_cast<std::byte*>(out.data()));
  return out;
}
std::string shared_by(const Unit& unit) {
  if (!unit.shared()) return "none";
  const SharedParameter& s = *unit.shared();
  return fmt::format("{}: {} {} [{}, {})", s.name, s.unit, s.parameter, s.elements.begin, s.elements.end);
}
void expect_same(const Model& a, const Model& b) {
  ASSERT_EQ(a.units.size(), b.units.size());
  for (std::size_t u = 0; u < a.units.size(); ++u) EXPECT_EQ(describe(*a.units[u]), describe(*b.units[u]));
  EXPECT_EQ(constants(a), constants(b));
  EXPECT_EQ(shared_by(a.loss_unit()), shared_by(b.loss_unit()));
  EXPECT_EQ(a.max_positions, b.max_positions);
}

TEST(FamiliesTest, Gpt2HasTheParametersOfTransformers) {
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

TEST(FamiliesTest, LlamaHasTheParametersOfTransformers) {
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

TEST(FamiliesTest, Qwen2HasBiasesOfQueriesKeysAndValues) {
  EXPECT_THAT(attention_names(*make(tiny("qwen2"))),
              ElementsAre("q_proj.weight 32x32 normal(0.02) decay", "k_proj.weight 16x32 normal(0.02) decay",
                          "v_proj.weight 16x32 normal(0.02) decay", "q_proj.bias 32 0 -", "k_proj.bias 16 0 -",
                          "v_proj.bias 16 0 -", "o_proj.weight 32x32 normal(0.02) decay"));
}

TEST(FamiliesTest, Qwen3HasNormsOfQueriesAndKeys) {
  EXPECT_THAT(attention_names(*make(tiny("qwen3"), {{"head_dim", "12"}})),
              ElementsAre("q_proj.weight 48x32 normal(0.02) decay", "k_proj.weight 24x32 normal(0.02) decay",
                          "v_proj.weight 24x32 normal(0.02) decay", "q_norm.weight 12 1 -", "k_norm.weight 12 1 -",
                          "o_proj.weight 32x48 normal(0.02) decay"));
}

TEST(FamiliesTest, LlamasBiasesAreThoseOfTheConfig) {
  const auto model = make(tiny("llama"), {{"attention_bias", "true"}, {"mlp_bias", "true"}});
  std::vector<std::string> biases;
  for (const std::string& p : describe(*model->units[1]))
    if (p.find(".bias ") != std::string::npos) biases.push_back(p.substr(15));
  EXPECT_THAT(biases, ElementsAre("self_attn.q_proj.bias 32 0 -", "self_attn.k_proj.bias 16 0 -",
                                  "self_attn.v_proj.bias 16 0 -", "self_attn.o_proj.bias 32 0 -",
                                  "mlp.gate_proj.bias 48 0 -", "mlp.up_proj.bias 48 0 -", "mlp.down_proj.bias 32 0 -"));
}

TEST(FamiliesTest, BertHasTheParametersOfTransformers) {
  const auto model = make(tiny("bert"), {{"architectures", R"(["BertForMaskedLM"])"}});
  ASSERT_EQ(model->units.size(), 5u);
  EXPECT_THAT(describe(*model->units[0]),
              ElementsAre("bert.embeddings.word_embeddings.weight 50x32 normal(0.02) decay",
                          "bert.embeddings.position_embeddings.weight 24x32 normal(0.02) decay",
                          "bert.embeddings.token_type_embeddings.weight 2x32 normal(0.02) decay"));
  EXPECT_THAT(describe(*model->units[1]),
              ElementsAre("bert.embeddings.LayerNorm.weight 32 1 -", "bert.embeddings.LayerNorm.bias 32 0 -"));
  const std::string p = "bert.encoder.layer.1.";
  EXPECT_THAT(
      describe(*model->units[3]),
      ElementsAre(p + "attention.self.query.weight 32x32 normal(0.02) decay",
                  p + "attention.self.key.weight 32x32 normal(0.02) decay",
                  p + "attention.self.value.weight 32x32 normal(0.02) decay", p + "attention.self.query.bias 32 0 -",
                  p + "attention.self.key.bias 32 0 -", p + "attention.self.value.bias 32 0 -",
                  p + "attention.output.dense.weight 32x32 normal(0.02) decay",
                  p + "attention.output.dense.bias 32 0 -", p + "attention.output.LayerNorm.weight 32 1 -",
                  p + "attention.output.LayerNorm.bias 32 0 -",
                  p + "intermediate.dense.weight 48x32 normal(0.02) decay", p + "intermediate.dense.bias 48 0 -",
                  p + "output.dense.weight 32x48 normal(0.02) decay", p + "output.dense.bias 32 0 -",
                  p + "output.LayerNorm.weight 32 1 -", p + "output.LayerNorm.bias 32 0 -"));
  EXPECT_THAT(describe(*model->units[4]),
              ElementsAre("cls.predictions.transform.LayerNorm.weight 32 1 -",
                          "cls.predictions.transform.LayerNorm.bias 32 0 -", "cls.predictions.bias 50 0 -",
                          "cls.predictions.transform.dense.weight 32x32 normal(0.02) decay",
                          "cls.predictions.transform.dense.bias 32 0 -"));
  EXPECT_EQ(shared_by(model->loss_unit()), "cls.predictions.decoder.weight: 0 0 [0, 4096)");
  EXPECT_EQ(model->optional_prefix, "bert.");
  EXPECT_EQ(model->family, "bert");

  const auto untied = make(tiny("bert"), {{"tie_word_embeddings", "false"}});
  EXPECT_EQ(shared_by(untied->loss_unit()), "none");
  EXPECT_EQ(describe(*untied->units.back()).back(), "cls.predictions.decoder.weight 50x32 normal(0.02) decay");
}

TEST(FamiliesTest, RobertasPositionsStartBehindThePadding) {
  for (const char* family : {"roberta", "xlm-roberta"}) {
    const auto model = make(tiny(family));
    EXPECT_EQ(model->family, family);
    EXPECT_EQ(model->max_positions, 22u);
    EXPECT_EQ(describe(*model->units[0])[1], "roberta.embeddings.position_embeddings.weight 24x32 normal(0.02) decay");
    EXPECT_EQ(describe(*model->units[3])[0],
              "roberta.encoder.layer.1.attention.self.query.weight 32x32 normal(0.02) decay");
    EXPECT_THAT(describe(*model->units[4]),
                ElementsAre("lm_head.layer_norm.weight 32 1 -", "lm_head.layer_norm.bias 32 0 -", "lm_head.bias 50 0 -",
                            "lm_head.dense.weight 32x32 normal(0.02) decay", "lm_head.dense.bias 32 0 -"));
    EXPECT_EQ(shared_by(model->loss_unit()), "lm_head.decoder.weight: 0 0 [0, 4096)");
    EXPECT_EQ(make(tiny(family), {{"pad_token_id", "4"}})->max_positions, 19u);
    EXPECT_FAILURE(make(tiny(family), {{"pad_token_id", "23"}}), Exit::usage,
                   AllOf(HasSubstr("pad_token_id is 23"), HasSubstr("max_position_embeddings=24")));
    EXPECT_FAILURE(make(tiny(family), {}, 23), Exit::usage, AllOf(HasSubstr("data.seq_len is 23"), HasSubstr("22")));
  }
}

TEST(FamiliesTest, DistilBertHasTheParametersOfTransformers) {
  const auto model = make(tiny("distilbert"));
  ASSERT_EQ(model->units.size(), 5u);
  EXPECT_THAT(describe(*model->units[0]),
              ElementsAre("distilbert.embeddings.word_embeddings.weight 50x32 normal(0.02) decay",
                          "distilbert.embeddings.position_embeddings.weight 24x32 normal(0.02) decay"));
  const std::string p = "distilbert.transformer.layer.0.";
  EXPECT_THAT(describe(*model->units[2]),
              ElementsAre(p + "attention.q_lin.weight 32x32 normal(0.02) decay",
                          p + "attention.k_lin.weight 32x32 normal(0.02) decay",
                          p + "attention.v_lin.weight 32x32 normal(0.02) decay", p + "attention.q_lin.bias 32 0 -",
                          p + "attention.k_lin.bias 32 0 -", p + "attention.v_lin.bias 32 0 -",
                          p + "attention.out_lin.weight 32x32 normal(0.02) decay", p + "attention.out_lin.bias 32 0 -",
                          p + "sa_layer_norm.weight 32 1 -", p + "sa_layer_norm.bias 32 0 -",
                          p + "ffn.lin1.weight 48x32 normal(0.02) decay", p + "ffn.lin1.bias 48 0 -",
                          p + "ffn.lin2.weight 32x48 normal(0.02) decay", p + "ffn.lin2.bias 32 0 -",
                          p + "output_layer_norm.weight 32 1 -", p + "output_layer_norm.bias 32 0 -"));
  EXPECT_THAT(
      describe(*model->units[4]),
      ElementsAre("vocab_layer_norm.weight 32 1 -", "vocab_layer_norm.bias 32 0 -", "vocab_projector.bias 50 0 -",
                  "vocab_transform.weight 32x32 normal(0.02) decay", "vocab_transform.bias 32 0 -"));
  EXPECT_EQ(shared_by(model->loss_unit()), "vocab_projector.weight: 0 0 [0, 4096)");
}

TEST(FamiliesTest, EncodersRefuseByNameWhatIsNotBuilt) {
  const auto refused = [](const std::string& family, const std::string& key, const std::string& value,
                          const std::string& words) {
    SCOPED_TRACE(family + " " + key);
    EXPECT_FAILURE(make(tiny(family), {{key, value}}), Exit::usage, AllOf(HasSubstr(key), HasSubstr(words)));
  };
  for (const char* family : {"bert", "roberta", "xlm-roberta"}) {
    refused(family, "hidden_act", "\"gelu_new\"", "gelu_new\", which is not built yet");
    refused(family, "position_embedding_type", "\"relative_key\"", "absolute");
    refused(family, "is_decoder", "true", "only false");
    refused(family, "add_cross_attention", "true", "only false");
    refused(family, "num_attention_heads", "5", "hidden_size=32");
    refused(family, "hidden_dropout_prob", "1.0", "below 1");
    refused(family, "attention_probs_dropout_prob", "-0.5", "at least 0");
    refused(family, "logit_softcap", "30.0", family);
  }
  refused("distilbert", "activation", "\"relu\"", "gelu");
  refused("distilbert", "sinusoidal_pos_embds", "true", "only false");
  refused("distilbert", "n_heads", "5", "dim=32");
  refused("distilbert", "logit_softcap", "30.0", "distilbert");
  // Another head than those that are built, by its name.
  refused("bert", "architectures", R"(["BertForQuestionAnswering"])", "BertForQuestionAnswering, whose head");
  for (const char* family : {"bert", "roberta", "distilbert"}) {
    const Config config = Config::parse(tiny(family), "config.json");
    RunShape run{1, 1, DType::fp32, 1, false};
    run.cache = 8;
    EXPECT_FAILURE(make_model(config, run), Exit::usage, HasSubstr("does not generate"));
  }
}

TEST(FamiliesTest, ArchitecturesNameTheObjective) {
  const auto objective = [](const std::string& family, const std::string& architecture) {
    const auto model =
        make(tiny(family), {{"architectures", architecture.empty() ? "[]" : "[\"" + architecture + "\"]"}});
    return model->objective;
  };
  for (const char* family : {"bert", "distilbert", "roberta", "xlm-roberta"}) {
    EXPECT_EQ(objective(family, ""), Objective::masked_lm);
    EXPECT_EQ(objective(family, "BertModel"), Objective::masked_lm) << "a model without a head";
    EXPECT_EQ(objective(family, "BertForMaskedLM"), Objective::masked_lm);
  }
  EXPECT_EQ(objective("bert", "BertForPreTraining"), Objective::masked_lm);
  EXPECT_EQ(objective("gpt2", "GPT2LMHeadModel"), Objective::causal_lm);
  EXPECT_EQ(objective("llama", ""), Objective::causal_lm);
  EXPECT_FAILURE(objective("bert", "BertLMHeadModel"), Exit::usage,
                 AllOf(HasSubstr("\"causal_lm\" is not built for bert"), HasSubstr("these are: \"masked_lm\"")));
  EXPECT_FAILURE(objective("llama", "LlamaForMaskedLM"), Exit::usage,
                 HasSubstr("\"masked_lm\" is not built for llama"));
  EXPECT_EQ(objective("gpt2", "GPT2ForSequenceClassification"), Objective::sequence_classification);
  EXPECT_FAILURE(objective("llama", "LlamaForQuestionAnswering"), Exit::usage, HasSubstr("training.objective"));
}

TEST(FamiliesTest, ParametersLieAlignedAndApartAndTheirPartsCoverThem) {
  for (const char* family : {"gpt2", "llama", "qwen2", "qwen3", "bert", "distilbert"}) {
    const auto model = make(tiny(family));
    for (const auto& unit : model->units) {
      std::size_t end = 0;
      for (const Parameter& p : unit->parameters()) {
        EXPECT_EQ(p.offset % kParameterAlignment, 0u) << p.name;
        EXPECT_GE(p.offset, end) << p.name;
        end = p.offset + p.size();
        // No tensor of these sizes is cut.
        EXPECT_TRUE(std::ranges::any_of(unit->parts(), [&](const Part& part) {
          return part.begin <= p.offset && end <= part.end;
        })) << p.name;
      }
      EXPECT_GE(unit->size(), end);
      EXPECT_EQ(unit->size() % kParameterAlignment, 0u);
      std::size_t border = 0;
      for (const Part& part : unit->parts()) EXPECT_EQ(part.begin, std::exchange(border, part.end)) << unit->name();
      EXPECT_EQ(border, unit->size());
    }
    const bool encoder = std::string_view(family).ends_with("bert");
    const Unit& block = *model->units[encoder ? 2 : 1];
    EXPECT_EQ(block.parts().size(), 4u) << family;
    EXPECT_EQ(block.saving_parts(), encoder ? 4u : 3u) << family;
  }
}

TEST(FamiliesTest, RefusesByNameWhatIsNotBuilt) {
  const auto refused = [](const std::string& family, const Overrides& overrides, const std::string& key,
                          const std::string& words) {
    SCOPED_TRACE(key);
    EXPECT_FAILURE(make(tiny(family), overrides), Exit::usage, AllOf(HasSubstr(key), HasSubstr(words)));
  };
  refused("t5", {}, "model_type of config.json", "\"t5\", which is not built yet; these are: bert, distilbert, gpt2");
  refused("gpt2", {{"activation_function", "\"relu\""}}, "model.config.activation_function is \"relu\"", "gelu_new");
  refused("gpt2", {{"activation_function", "\"gelu\""}}, "activation_function", "not built yet");  // exact, not tanh
  refused("gpt2", {{"n_head", "5"}}, "n_head=5", "n_embd=32");
  refused("gpt2", {{"scale_attn_weights", "false"}}, "scale_attn_weights is false", "only true");
  refused("gpt2", {{"scale_attn_by_inverse_layer_idx", "true"}}, "scale_attn_by_inverse_layer_idx is true",
          "not built");
  refused("gpt2", {{"add_cross_attention", "true"}}, "add_cross_attention is true", "not built");
  for (const char* key : {"attn_pdrop", "resid_pdrop", "embd_pdrop"})
    for (const char* p : {"1.5", "1", "-0.1"}) refused("gpt2", {{key, p}}, key, "at least 0 and below 1");
  refused("llama", {{"attention_dropout", "1.5"}}, "attention_dropout is 1.5", "below 1");
  refused("llama", {{"hidden_act", "\"gelu\""}}, "hidden_act is \"gelu\"", "silu");
  refused("llama", {{"num_key_value_heads", "3"}}, "num_key_value_heads=3", "num_attention_heads=4");
  refused("llama", {{"num_attention_heads", "5"}, {"num_key_value_heads", "5"}, {"head_dim", "null"}},
          "num_attention_heads=5", "hidden_size=32");
  refused("llama", {{"head_dim", "7"}}, "head_dim=7", "odd");
  refused("mistral", {{"attention_bias", "true"}}, "attention_bias is true", "only false");
  for (const char* family : {"mistral", "qwen2", "qwen3"})
    refused(family, {{"mlp_bias", "true"}}, "mlp_bias is true", "only false");
  refused("qwen2", {{"use_mrope", "true"}}, "use_mrope is true", "only false");
  for (const char* kind : {"yarn", "dynamic", "longrope"}) {
    const std::string json = fmt::format(R"({{"rope_type":"{}","factor":2.0,"rope_theta":10000.0}})", kind);
    refused("llama", {{"rope_parameters", json}}, "rope_parameters.rope_type is \"" + std::string(kind), "llama3");
    refused("llama", {{"rope_scaling", fmt::format(R"({{"type":"{}","factor":2.0}})", kind)}},
            "rope_scaling.type is \"" + std::string(kind), "llama3");
  }
  refused("llama", {{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor", "not built");
  refused("llama", {{"rope_parameters", R"({"rope_theta":1e4,"partial_rotary_factor":0.5})"}},
          "rope_parameters.partial_rotary_factor", "not built");
  for (const char* family : {"qwen2", "qwen3"})
    refused(family, {{"use_sliding_window", "true"}, {"sliding_window", "8"}}, "use_sliding_window", "data.seq_len=16");
}

TEST(FamiliesTest, SizesWhoseProductsWouldOverflowAreRefused) {
  const auto refused = [](const char* family, const char* key, const char* value, std::size_t seq = 16) {
    SCOPED_TRACE(key);
    EXPECT_FAILURE(make(tiny(family), {{key, value}}, seq), Exit::usage, HasSubstr(key));
  };
  for (const char* key : {"n_embd", "n_inner", "n_layer", "vocab_size"}) refused("gpt2", key, "2147483647");
  for (const char* key :
       {"hidden_size", "num_attention_heads", "head_dim", "intermediate_size", "num_hidden_layers", "vocab_size"})
    refused("llama", key, "2147483646");
  refused("llama", "head_dim", "524288");  // times 4 heads
  for (const char* key : {"rms_norm_eps", "initializer_range", "rope_theta"}) refused("llama", key, "-1.0");
  EXPECT_FAILURE(make(tiny("gpt2"), {{"n_positions", "2147483647"}}, (std::size_t{1} << 24) + 1), Exit::usage,
                 AllOf(HasSubstr("training.micro_batch_size"), HasSubstr("data.seq_len=16777217")));
}

TEST(FamiliesTest, RefusesUnknownKeysByName) {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3"}) {
    EXPECT_FAILURE(make(tiny(family), {{"logit_softcap", "30.0"}}), Exit::usage,
                   AllOf(HasSubstr("model.config.logit_softcap"), HasSubstr(family)));
    EXPECT_FAILURE(make(tiny(family), {{"rope_parameters", R"({"mscale":1.0})"}}), Exit::usage,
                   HasSubstr("rope_parameters.mscale"));
    // null is as good as absent
    EXPECT_NO_THROW(make(tiny(family), {{"logit_softcap", "null"}})) << family;
  }
  // Another family's key would change the mathematics where it is known.
  EXPECT_FAILURE(make(tiny("gpt2"), {{"rms_norm_eps", "1e-5"}}), Exit::usage, HasSubstr("rms_norm_eps"));
  EXPECT_FAILURE(make(tiny("llama"), {{"layer_norm_epsilon", "1e-5"}}), Exit::usage, HasSubstr("layer_norm_epsilon"));
}

TEST(FamiliesTest, AMissingShapeIsNamed) {
  for (const char* key : {"n_embd", "n_head", "n_layer", "n_positions", "vocab_size"})
    EXPECT_FAILURE(make(tiny("gpt2"), {{key, "null"}}), Exit::usage, HasSubstr(key));
  for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers",
                          "max_position_embeddings", "vocab_size"})
    EXPECT_FAILURE(make(tiny("llama"), {{key, "null"}}), Exit::usage, HasSubstr(key));
  // transformers has constants in their place, or what follows from other keys.
  for (const char* family : {"mistral", "qwen2", "qwen3"})
    EXPECT_FAILURE(make(tiny(family), {{"num_key_value_heads", "null"}}), Exit::usage,
                   HasSubstr("num_key_value_heads"));
  EXPECT_FAILURE(make(tiny("qwen3"), {{"head_dim", "null"}}), Exit::usage, HasSubstr("head_dim"));
  expect_same(*make(tiny("llama"), {{"num_key_value_heads", "null"}, {"head_dim", "null"}}),
              *make(tiny("llama"), {{"num_key_value_heads", "4"}}));
  EXPECT_FAILURE(make("{}"), Exit::corrupt, HasSubstr("config.json has no model_type"));
}

TEST(FamiliesTest, ASequenceNeedsItsPositions) {
  for (const char* family : {"gpt2", "llama"}) {
    EXPECT_FAILURE(make(tiny(family), {}, 25), Exit::usage, AllOf(HasSubstr("data.seq_len is 25"), HasSubstr("24")));
    EXPECT_EQ(make(tiny(family), {}, 24)->max_positions, 24u);
  }
}

TEST(FamiliesTest, SlidingWindowsThatAreNotSeenAreAllowed) {
  EXPECT_NO_THROW(make(tiny("qwen2"), {{"use_sliding_window", "true"}, {"sliding_window", "16"}}));
  EXPECT_NO_THROW(make(tiny("qwen2"), {{"use_sliding_window", "false"}, {"sliding_window", "8"}}));
  EXPECT_NO_THROW(make(tiny("mistral"), {{"sliding_window", "8"}}));
  EXPECT_NO_THROW(make(tiny("mistral"), {{"sliding_window", "null"}}));
}

TEST(FamiliesTest, BothSpellingsOfTransformersAreOneModel) {
  const Overrides four = {{"rope_theta", "500000.0"},
                          {"rope_scaling", R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
                             "high_freq_factor":4.0,"original_max_position_embeddings":12})"},
                          {"torch_dtype", "\"bfloat16\""}};
  const Overrides five = {{"rope_parameters", R"({"rope_theta":500000.0,"rope_type":"llama3","factor":8.0,
                             "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":12})"},
                          {"dtype", "\"bfloat16\""}};
  expect_same(*make(tiny("llama"), four), *make(tiny("llama"), five));
  EXPECT_NE(constants(*make(tiny("llama"), four)), constants(*make(tiny("llama"))));
  // The oldest files say "type" for "rope_type".
  expect_same(
      *make(tiny("llama"), {{"rope_scaling", R"({"type":"linear","factor":2.0})"}}),
      *make(tiny("llama"), {{"rope_parameters", R"({"rope_theta":10000.0,"rope_type":"linear","factor":2.0})"}}));
  expect_same(*make(tiny("qwen3"), {{"rope_theta", "1000000.0"}, {"rope_scaling", "null"}}),
              *make(tiny("qwen3"), {{"rope_parameters", R"({"rope_theta":1000000.0,"rope_type":"default"})"}}));
  // transformers 5 takes a base that its group does not have from beside it.
  expect_same(*make(tiny("llama"), {{"rope_theta", "500000.0"}}),
              *make(tiny("llama"), {{"rope_theta", "500000.0"}, {"rope_parameters", R"({"rope_type":"default"})"}}));
}

// Frequencies from the table's row of position 1.
std::vector<double> frequencies(const Model& model, std::size_t positions, std::size_t half) {
  const std::vector<float> table = constants(model);
  EXPECT_EQ(table.size(), 2 * positions * half);
  std::vector<double> out;
  for (std::size_t i = 0; i < half; ++i)
    out.push_back(std::atan2(double{table[(positions + 1) * half + i]}, double{table[half + i]}));
  return out;
}

TEST(FamiliesTest, RotaryFrequenciesAreThoseOfTransformers) {
  const std::vector<double> plain =
      frequencies(*make(tiny("llama"), {{"rope_parameters", R"({"rope_theta":16.0})"}}), kSeq, 4);
  const std::vector<double> halved = frequencies(
      *make(tiny("llama"), {{"rope_theta", "16"}, {"rope_scaling", R"({"type":"linear","factor":2.0})"}}), kSeq, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(plain[i], std::pow(2.0, -static_cast<double>(i)), 1e-7);  // 16^(-2i/8)
    EXPECT_NEAR(halved[i], plain[i] / 2, 1e-7);
  }

  // Llama 3.2's, as transformers' _compute_llama3_parameters has them; by hand from its formula: turns of 8,192
  // positions above 4 stay, below 1 are divided by 32, between them it interpolates.
  Config config = Config::parse(preset_config("llama-1b"), "llama-1b");
  config.override_key("num_hidden_layers", "1");
  config.override_key("vocab_size", "64");
  const auto model = make_model(config, {1, 4, DType::fp32, 1});
  const std::vector<double> scaled = frequencies(*model, 4, 32);
  const std::pair<std::size_t, double> expected[] = {{0, 1.0},
                                                     {14, 0.0032114459947525913},
                                                     {15, 0.001290547928209264},
                                                     {16, 0.00042955679655936815},
                                                     {17, 9.70828780262767e-05},
                                                     {18, 1.9461638184831125e-05},
                                                     {31, 9.418306725434909e-08}};
  for (const auto& [i, frequency] : expected) EXPECT_NEAR(scaled[i] / frequency, 1, 1e-6) << "frequency " << i;
}

TEST(FamiliesTest, RotaryTablesGoAsFarAsTheSequence) {
  const auto model = make(tiny("llama"));
  const std::vector<float> table = constants(*model);
  const std::size_t half = 4;
  ASSERT_EQ(table.size(), 2 * kSeq * half);
  for (std::size_t p = 0; p < kSeq; ++p)
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(i) / half);
      // The angle is a product of floats, up to 15: half a unit of 2^-20 in its last place.
      EXPECT_NEAR(table[p * half + i], std::cos(angle), 2e-6);
      EXPECT_NEAR(table[(kSeq + p) * half + i], std::sin(angle), 2e-6);
    }
  EXPECT_EQ(make(tiny("gpt2"))->constants_bytes, 0u);
}

TEST(FamiliesTest, ReadsTheConfigsOfPublishedModels) {
  // Every key of the models' config.json, their sizes made small.
  const std::string llama32 = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":128000,"eos_token_id":[128001,128008],"head_dim":8,"hidden_act":"silu","hidden_size":32,
    "initializer_range":0.02,"intermediate_size":48,"max_position_embeddings":131072,"mlp_bias":false,
    "model_type":"llama","num_attention_heads":4,"num_hidden_layers":1,"num_key_value_heads":2,"pretraining_tp":1,
    "rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
    "original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,"tie_word_embeddings":true,
    "torch_dtype":"bfloat16","transformers_version":"4.45.0.dev0","use_cache":true,"vocab_size":64})";
  const std::string qwen25 = R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,
    "eos_token_id":151643,"hidden_act":"silu","hidden_size":32,"initializer_range":0.02,"intermediate_size":48,
    "max_position_embeddings":131072,"max_window_layers":28,"model_type":"qwen2","num_attention_heads":4,
    "num_hidden_layers":1,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":131072,
    "tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.40.1","use_cache":true,
    "use_mrope":false,"use_sliding_window":false,"vocab_size":64})";
  const std::string mistral = R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,
    "hidden_act":"silu","hidden_size":32,"initializer_range":0.02,"intermediate_size":48,
    "max_position_embeddings":32768,"model_type":"mistral","num_attention_heads":4,"num_hidden_layers":1,
    "num_key_value_heads":2,"rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":4096,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.34.0.dev0","use_cache":true,
    "vocab_size":64})";
  const std::string gpt2 = R"({"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,
    "bos_token_id":50256,"embd_pdrop":0.1,"eos_token_id":50256,"initializer_range":0.02,"layer_norm_epsilon":1e-05,
    "model_type":"gpt2","n_ctx":1024,"n_embd":32,"n_head":4,"n_layer":1,"n_positions":1024,"resid_pdrop":0.1,
    "summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,"summary_type":"cls_index",
    "summary_use_proj":true,"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},
    "vocab_size":64})";
  for (const std::string& json : {llama32, qwen25, mistral, gpt2}) EXPECT_NO_THROW(make(json)) << json;
}

TEST(FamiliesTest, CountsTheWorkOfAToken) {
  const auto preset = [](const char* name, std::size_t seq) {
    return make_model(Config::parse(preset_config(name), name), {1, seq, DType::fp32, 1})->flops_per_token(seq);
  };
  // 4 blocks of 12 * 128^2 and a head of 512 * 128; attention 4 blocks * 128 * seq, a tied table counted once.
  EXPECT_EQ(preset("tiny-gpt2", 64), 6.0 * (4 * 196608 + 65536) + 12.0 * 4 * 128 * 64);
  // q and o 128^2 each, k and v 64 * 128 each, three matrices of 352 * 128; the embedding is looked up.
  EXPECT_EQ(preset("tiny-llama", 32), 6.0 * (4 * (2 * 16384 + 2 * 8192 + 3 * 45056) + 65536) + 12.0 * 4 * 128 * 32);
}

double flops_of(const std::vector<device::ProductShape>& products) {
  double flops = 0;
  for (const device::ProductShape& s : products)
    flops += 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  return flops;
}

// What a unit says it costs is what its products are; its parts have what the whole has, and a loss's steps what its
// call has, but for the logits that they compute twice.
TEST(FamiliesTest, UnitsKnowWhatTheyCost) {
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "qwen3"})
    for (const char* tied : {"true", "false"}) {
      // Three tiles of a table.
      const auto model = make(tiny(family), {{"tie_word_embeddings", tied}, {"vocab_size", "8200"}});
      for (const auto& unit : model->units) {
        SCOPED_TRACE(fmt::format("{}, {}", family, unit->name()));
        std::vector<device::ProductShape> products;
        unit->list_products(products);
        double flops = 0;
        for (const Pass pass : {Pass::forward, Pass::backward}) {
          const Work whole = unit->work(pass, {0, unit->size()});
          Work sum;
          for (const Part& part : unit->parts()) {
            const Work w = unit->work(pass, part);
            sum = {sum.flops + w.flops, sum.attention_flops + w.attention_flops, sum.bytes + w.bytes};
          }
          flops += whole.flops;
          EXPECT_DOUBLE_EQ(sum.flops, whole.flops);
          EXPECT_DOUBLE_EQ(sum.attention_flops, whole.attention_flops);
          EXPECT_DOUBLE_EQ(sum.bytes, whole.bytes);
          EXPECT_GT(whole.bytes, 0);
          EXPECT_EQ(whole.attention_flops > 0, unit->name().starts_with("block"));
        }
        EXPECT_EQ(flops, flops_of(products));
      }
      const LossUnit& loss = model->loss_unit();
      ASSERT_EQ(loss.table_tiles(), 3u);
      double forward = 0, both = 0;
      for (const std::size_t rows : {4096, 4096, 8}) {
        forward += loss.step_work(LossStep::statistics, rows * 32).flops;
        both += loss.step_work(LossStep::gradients, rows * 32).flops;
      }
      EXPECT_EQ(forward, loss.loss_work(false).flops);
      EXPECT_EQ(both, loss.loss_work(true).flops);
      EXPECT_EQ(loss.step_work(LossStep::norm, 32).flops + loss.step_work(LossStep::finish, 32).flops, 0);
    }
}

// What who plans a step goes by: units in a row from one without input to one with a loss, tables in fp32 moments.
TEST(FamiliesTest, UnitsSayWhatTheyTakeAndGive) {
  for (const char* family : {"gpt2", "llama"}) {
    const auto model = make(tiny(family));
    for (std::size_t u = 0; u < model->units.size(); ++u) {
      const Unit& unit = *model->units[u];
      EXPECT_EQ(unit.ports().input, u > 0) << unit.name();
      EXPECT_EQ(unit.as_loss() != nullptr, u + 1 == model->units.size()) << unit.name();
      for (const Parameter& p : unit.parameters()) EXPECT_EQ(p.fp32_moments, u == 0) << p.name;
      EXPECT_EQ(unit.shared().has_value(), unit.as_loss() && model->family == "gpt2") << unit.name();
    }
    EXPECT_EQ(&model->loss_unit(), model->units.back()->as_loss());
  }
}

}  // namespace
}  // namespace strata::models

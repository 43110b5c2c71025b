#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "models/families/families.h"
#include "models/files/config.h"
#include "models/model.h"
#include "tests/failure.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kFamilyNames;
using testing::make;
using testing::with;

TEST(OtherMathematicsTest, ComparesAttentionScalesWithDefaultSizes) {
  const auto refuse = [](const std::string& family, const std::string& more) {
    refuse_unsupported_keys(Config::parse(fmt::format(R"({{"model_type":"{}",{}}})", family, more), "config.json"));
  };
  struct Sizes {
    const char *family, *head_dim, *scale, *layers_root;
  };
  for (const Sizes& one : {Sizes{"gpt2", "64", "0.125", "3.4641016151377544"},
                           {"bert", "64", "0.125", "3.4641016151377544"},
                           {"distilbert", "64", "0.125", "2.449489742783178"},
                           {"modernbert", "64", "0.125", "4.69041575982343"},
                           {"llama", "128", "0.08838834764831845", "5.656854249492381"},
                           {"qwen3", "128", "0.08838834764831845", "5.656854249492381"}}) {
    SCOPED_TRACE(one.family);
    EXPECT_NO_THROW(refuse(one.family, fmt::format(R"("softmax_scale":{},"query_pre_attn_scalar":{},"scale_depth":{})",
                                                   one.scale, one.head_dim, one.layers_root)));
    for (const char* wrong : {"0.3", "1e9", "0"})
      EXPECT_FAILURE(refuse(one.family, fmt::format(R"("softmax_scale":{})", wrong)), Exit::usage,
                     HasSubstr("softmax_scale"));
    EXPECT_FAILURE(refuse(one.family, R"("query_pre_attn_scalar":0)"), Exit::usage, HasSubstr("query_pre_attn"));
    EXPECT_NO_THROW(refuse(one.family, R"("softmax_scale":null)"));
  }
  // Without heads there is no scale for comparison.
  EXPECT_FAILURE(refuse("gpt2", R"("n_head":0,"softmax_scale":7)"), Exit::usage, HasSubstr("softmax_scale"));
}

TEST(OtherMathematicsTest, TheFamilyDeterminesWhatAQuerySees) {
  for (const std::string family : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "bert", "distilbert", "modernbert"}) {
    const bool decoder = family.find("bert") == std::string::npos;
    for (const std::string value : {"true", "false", "null"}) {
      const Config config =
          Config::parse(fmt::format(R"({{"model_type":"{}","is_causal":{}}})", family, value), "config.json");
      if (value == "null" || value == (decoder ? "true" : "false"))
        EXPECT_NO_THROW(refuse_unsupported_keys(config)) << family << value;
      else
        EXPECT_FAILURE(refuse_unsupported_keys(config), Exit::usage, HasSubstr("is_causal of config.json is " + value));
    }
  }
}

// transformers' setter stores half of local_attention, and overrides it.
TEST(OtherMathematicsTest, ModernBertsWindowHasTwoNames) {
  const auto attention = [](const std::string& window) {
    const auto model = make_model(
        Config::parse(R"({"model_type":"modernbert","hidden_size":8,"num_attention_heads":2,"num_hidden_layers":2,
                          "intermediate_size":12,"vocab_size":5,"max_position_embeddings":32,)" +
                          window + "}",
                      "config.json"),
        {1, 32, device::DType::fp32, 1});
    const Unit& block = *model->units[3];
    return block.work(Pass::forward, block.all_parts()).attention_flops;
  };
  EXPECT_EQ(attention(R"("sliding_window":2)"), attention(R"("local_attention":4)"));
  EXPECT_EQ(attention(R"("local_attention":16,"sliding_window":2)"), attention(R"("local_attention":4)"));
  EXPECT_NE(attention(R"("local_attention":16)"), attention(R"("local_attention":4)"));
}

TEST(OtherMathematicsTest, EveryFamilyRefusesItUnlessItHasNoEffect) {
  struct Case {
    const char *key, *wrong, *inert, *words;
  };
  const Case cases[] = {
      {"num_local_experts", "8", "0", "experts"},
      {"num_experts", "64", "null", "experts"},
      {"n_routed_experts", "256", "0", "experts"},
      {"num_experts_per_tok", "2", "0", "experts"},
      {"moe_intermediate_size", "768", "0", "experts"},
      {"shared_expert_intermediate_size", "768", "0", "experts"},
      {"attn_logit_softcapping", "50.0", "null", "soft cap"},
      {"final_logit_softcapping", "30.0", "null", "soft cap"},
      {"logits_soft_cap", "30.0", "0", "soft cap"},
      {"logit_scale", "0.0625", "1.0", "scaling"},
      {"logits_scaling", "8.0", "1", "scaling"},
      {"embedding_multiplier", "12.0", "1.0", "scaling"},
      {"residual_multiplier", "0.22", "1.0", "scaling"},
      {"scale_emb", "12", "1", "scaling"},
      {"attention_multiplier", "0.0078125", "0.35355339059327373", "attention scores"},
      {"query_pre_attn_scalar", "256", "8", "attention scores"},
      {"alibi", "true", "false", "ALiBi"},
      {"alibi_starting_size", "512", "null", "ALiBi"},
      {"position_embedding_type", "\"alibi\"", "null", "ALiBi"},
      {"position_embedding_type", "\"relative_key_query\"", "null", "relative positions"},
      {"rope_interleaved", "true", "false", "neighbouring columns"},
      {"no_rope_layers", "[1,0]", "[1,1]", "without rotary positions"},
      {"kv_lora_rank", "512", "null", "latent attention"},
      {"qk_layernorm", "true", "false", "norm of queries"},
      {"clip_qkv", "8.0", "null", "clipped"},
      {"use_parallel_residual", "true", "false", "parallel residual"},
      {"multi_query", "true", "false", "single key and value"},
      {"add_cross_attention", "true", "false", "cross-attention"},
      {"is_encoder_decoder", "true", "false", "encoder-decoder"},
      {"scale_attn_by_inverse_layer_idx", "true", "false", "layer's number"},
      {"quantization_config", R"({"bits":4,"quant_method":"gptq"})", "null", "quantised weights"},
      {"quantization", R"({"group_size":64,"bits":4})", "{}", "quantised weights"},
      {"quantization_config", R"({"quant_method":"fp8"})", R"({"load_in_4bit":false,"load_in_8bit":false})",
       "quantised weights"},
      {"draft_vocab_size", "25", "50", "draft model"},
      {"dflash_config", R"({"target_layer_ids":[1]})", "null", "draft model"},
      {"num_nextn_predict_layers", "1", "0", "several tokens"},
      {"vision_config", R"({"hidden_size":8})", "null", "images"},
      {"embedding_size", "16", "32", "width other than hidden_size"},
      {"pruned_heads", R"({"0":[1]})", "{}", "different shapes"},
      {"attention_window", "[8,8]", "[]", "windows"},
  };
  for (const char* family : kFamilyNames)
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{} {}", family, c.key));
      const bool own = std::string_view(c.key) == "qk_layernorm" && std::string_view(family) == "qwen3";
      if (!own)
        EXPECT_FAILURE(make(with(family, fmt::format(R"("{}":{})", c.key, c.wrong))), Exit::usage,
                       AllOf(HasSubstr(c.key), HasSubstr(c.words), HasSubstr("not supported")));
      EXPECT_NO_THROW(make(with(family, fmt::format(R"("{}":{})", c.key, c.inert))));
    }
  for (const char* name : {"LlamaForCausalLMEagle3", "PEagleDraftModel", "DFlashDraftModel", "MedusaModel"})
    EXPECT_FAILURE(objective_of(Config::parse(with("llama", fmt::format(R"("architectures":["{}"])", name)), "c.json")),
                   Exit::usage, AllOf(HasSubstr(name), HasSubstr("draft model")));
  for (const char* family : {"bert", "gpt2"}) {
    EXPECT_NO_THROW(make(with(family, R"("use_qkv_bias":true,"rotary_pct":0,"use_bias":true)")));
    EXPECT_FAILURE(make(with(family, R"("use_bias":false)")), Exit::usage, HasSubstr("biases in layers other"));
    EXPECT_FAILURE(make(with(family, R"("rotary_pct":1.0)")), Exit::usage, HasSubstr("rotary positions"));
  }
  EXPECT_NO_THROW(make(with("llama", R"("use_qkv_bias":false,"rotary_pct":1.0,"use_bias":false)")));
  EXPECT_NO_THROW(make(with("llama", R"("use_qkv_bias":true,"attention_bias":true)")));
  EXPECT_NO_THROW(make(with("qwen2", R"("use_qkv_bias":true)")));
  EXPECT_FAILURE(make(with("llama", R"("use_qkv_bias":true)")), Exit::usage, HasSubstr("biases in layers other"));
  EXPECT_FAILURE(make(with("llama", R"("rotary_pct":0.25)")), Exit::usage, HasSubstr("part of each head"));
}

}  // namespace
}  // namespace strata::models

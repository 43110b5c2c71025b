#include "models/families/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/failure.h"
#include "tests/models/families/tiny_model.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using testing::constants;
using testing::expect_same;
using ::testing::HasSubstr;
using testing::kFamilyNames;
using testing::make;
using testing::Overrides;
using testing::tiny;
using testing::with;

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
  EXPECT_FAILURE(
      objective("bert", "BertLMHeadModel"), Exit::usage,
      AllOf(HasSubstr("\"causal_lm\" is not supported for bert"), HasSubstr("the supported ones are: \"masked_lm\"")));
  EXPECT_FAILURE(objective("llama", "LlamaForMaskedLM"), Exit::usage,
                 HasSubstr("\"masked_lm\" is not supported for llama"));
  EXPECT_EQ(objective("gpt2", "GPT2ForSequenceClassification"), Objective::sequence_classification);
  EXPECT_FAILURE(objective("llama", "LlamaForQuestionAnswering"), Exit::usage, HasSubstr("training.objective"));
}

TEST(FamiliesTest, RefusesUnsupportedKeysByName) {
  const auto refused = [](const std::string& family, const Overrides& overrides, const std::string& key,
                          const std::string& words) {
    SCOPED_TRACE(key);
    EXPECT_FAILURE(make(tiny(family), overrides), Exit::usage, AllOf(HasSubstr(key), HasSubstr(words)));
  };
  refused("t5", {}, "model_type of config.json",
          "\"t5\", which is not supported; the supported ones are: bert, distilbert, gpt2");
  refused("gpt2", {{"activation_function", "\"relu\""}}, "model.config.activation_function is \"relu\"", "gelu_new");
  refused("gpt2", {{"n_head", "5"}}, "n_head=5", "n_embd=32");
  refused("gpt2", {{"scale_attn_weights", "false"}}, "scale_attn_weights is false", "sqrt(head_dim) are not supported");
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
  refused("qwen2", {{"use_mrope", "true"}}, "use_mrope is true", "image positions");
  for (const auto& [kind, remedy] : {std::pair{"longrope", "a factor for each frequency"},
                                     {"su", "a factor for each frequency"},
                                     {"mrope", "images"},
                                     {"ntk", "yarn are"}}) {
    const std::string json = fmt::format(R"({{"rope_type":"{}","factor":2.0,"rope_theta":10000.0}})", kind);
    refused("llama", {{"rope_parameters", json}}, "rope_parameters.rope_type is \"" + std::string(kind), remedy);
    refused("llama", {{"rope_scaling", fmt::format(R"({{"type":"{}","factor":2.0}})", kind)}},
            "rope_scaling.type is \"" + std::string(kind), remedy);
    refused("modernbert", {{"rope_parameters", R"({"sliding_attention":)" + json + "}"}},
            "rope_parameters.sliding_attention.rope_type is \"" + std::string(kind), remedy);
  }
  refused("llama", {{"rope_scaling", R"({"type":"dynamic","factor":2.0,"original_max_position_embeddings":8})"}},
          "rope_scaling.type is \"dynamic\"", "not supported with rope_scaling.original_max_position_embeddings");
  // A key given next to it, as every preset does, is not reported as unknown.
  refused("llama",
          {{"rope_parameters", R"({"rope_theta":1e5})"}, {"rope_scaling", R"({"rope_type":"linear","factor":2.0})"}},
          "rope_scaling.factor", "contradicts rope_parameters");
  refused("llama", {{"rope_parameters", R"({"rope_theta":1e5})"}, {"rope_scaling", R"({"factor":2.0})"}},
          "rope_scaling.factor", "contradicts rope_parameters");
  refused("llama", {{"rope_parameters", R"({"full_attention":{"rope_theta":1e5}})"}}, "rope_parameters.full_attention",
          "modernbert");
  refused("modernbert", {{"layer_types", R"(["full_attention"])"}}, "layer_types", "1 entry");
  refused("modernbert", {{"rope_scaling", R"({"type":"linear","factor":2.0})"}}, "rope_scaling.type", "rope_type");
  for (const char* ends : {"[[1]]", "\"x\"", "1.5", "true"})
    refused("llama", {{"eos_token_id", ends}}, "eos_token_id", "an integer or a list of integers");
  refused("llama", {{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor", "not supported");
  refused("llama", {{"rope_parameters", R"({"rope_theta":1e4,"partial_rotary_factor":0.5})"}},
          "rope_parameters.partial_rotary_factor", "not supported");
}

TEST(FamiliesTest, RefusesSizesWhoseProductsOverflow) {
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

std::vector<std::string> notes(const std::string& json) {
  const Config config = Config::parse(json, "config.json");
  (void)make_model(config, {1, testing::kSeq, device::DType::fp32, 1});
  return config.notes();
}
TEST(FamiliesTest, NamesUnreadKeysOnceAndIgnoresThem) {
  for (const char* family : kFamilyNames) {
    SCOPED_TRACE(family);
    const auto lines = notes(with(family, R"("unsloth_fixed":true,"_num_labels":5,"custom_metrics":{"a":1,"b":{"c":2}},
      "transformers.js_config":{"dtype":"q4"},"temperature":0.6,"transformers_version":"4.1","n":null,"nan":NaN)"));
    const auto found = std::ranges::find_if(lines, [](const auto& line) { return line.find("unsloth") != line.npos; });
    ASSERT_NE(found, lines.end());
    EXPECT_THAT(*found, AllOf(HasSubstr("config.json has 4 keys that " + std::string(family) + " models do not read"),
                              HasSubstr(": custom_metrics, nan, transformers.js_config, unsloth_fixed")));
    expect_same(*make(tiny(family)), *make(with(family, R"("unsloth_fixed":true)")));
    // A key in the recipe must have an effect.
    EXPECT_FAILURE(make(tiny(family), {{"unsloth_fixed", "true"}}), Exit::usage,
                   AllOf(HasSubstr("model.config.unsloth_fixed"), HasSubstr(family)));
    EXPECT_NO_THROW(make(tiny(family), {{"unsloth_fixed", "null"}}));
    EXPECT_THAT(notes(with(family, R"("auto_map":{"AutoModel":"a.B"})")),
                ::testing::Contains(AllOf(HasSubstr("auto_map"), HasSubstr("its own code"))));
  }
  // A key of another family has no meaning here.
  EXPECT_THAT(notes(with("gpt2", R"("rms_norm_eps":1e-5)")), ::testing::Contains(HasSubstr("1 key")));
  EXPECT_FAILURE(make(tiny("gpt2"), {{"rms_norm_eps", "1e-5"}}), Exit::usage, HasSubstr("rms_norm_eps"));
  EXPECT_FAILURE(make(with("llama", R"("rope_theta":Infinity)")), Exit::usage,
                 AllOf(HasSubstr("rope_theta"), HasSubstr("must be finite")));
}

// transformers makes an attribute with this name, but nothing reads it.
TEST(FamiliesTest, AKeyWithADotIsNotANestedKey) {
  const std::string nested = R"("rope_scaling":{"rope_type":"linear","factor":2.0})";
  const std::string both = with("llama", nested + R"(,"rope_scaling.factor":4.0,"id2label.0":"x")");
  EXPECT_THAT(notes(both), ::testing::Contains(HasSubstr(R"(2 keys)")));
  EXPECT_THAT(notes(both),
              ::testing::Contains(HasSubstr(R"(: "rope_scaling.factor" (one key, whose name has a dot), id2label.0)")));
  expect_same(*make(both), *make(with("llama", nested)));
  EXPECT_EQ(constants(*make(both)), constants(*make(with("llama", nested))));
  // In the recipe, this name means the nested key.
  EXPECT_EQ(constants(*make(both, {{"rope_scaling.factor", "8.0"}})),
            constants(*make(with("llama", nested), {{"rope_scaling.factor", "8.0"}})));
}

TEST(FamiliesTest, MissingKeysHaveTransformersDefaults) {
  const auto positions = [](const char* json) { return make(json)->max_positions; };
  EXPECT_EQ(positions(R"({"model_type":"llama","hidden_size":32,"num_attention_heads":4,"intermediate_size":48,
    "num_hidden_layers":1,"vocab_size":50})"),
            2048u);
  EXPECT_EQ(positions(R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":1,"vocab_size":50})"), 1024u);
  EXPECT_EQ(positions(R"({"model_type":"bert","hidden_size":32,"num_attention_heads":4,"intermediate_size":48,
    "num_hidden_layers":1,"vocab_size":50})"),
            512u);
  const std::string qwen3 = R"({"model_type":"qwen3","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
    "intermediate_size":48,"num_hidden_layers":1,"vocab_size":50})";
  EXPECT_EQ(make(qwen3)->head_dim, 128u);
  EXPECT_THAT(notes(qwen3),
              ::testing::UnorderedElementsAre("config.json has no head_dim: it is 128, as in transformers",
                                              "config.json has no max_position_embeddings: it is 32768, as in "
                                              "transformers"));
  // In transformers, null means "as many as heads". An absent key means a constant, which has to be valid.
  for (const char* family : {"mistral", "qwen2", "qwen3"}) {
    EXPECT_NO_THROW(make(tiny(family), {{"num_key_value_heads", "null"}}));
    const std::string json = fmt::format(R"({{"model_type":"{}","hidden_size":32,"num_attention_heads":4,
      "head_dim":8,"intermediate_size":48,"num_hidden_layers":1,"vocab_size":50}})",
                                         family);
    EXPECT_FAILURE(make(json), Exit::usage, HasSubstr("num_key_value_heads"));
  }
  expect_same(*make(tiny("llama"), {{"num_key_value_heads", "null"}, {"head_dim", "null"}}),
              *make(tiny("llama"), {{"num_key_value_heads", "4"}}));
  EXPECT_FAILURE(make("{}"), Exit::corrupt, HasSubstr("config.json has no model_type"));
}

TEST(FamiliesTest, AcceptsOtherFamiliesNamesForASize) {
  expect_same(*make(tiny("gpt2")), *make(R"({"model_type":"gpt2","hidden_size":32,"num_attention_heads":4,
    "num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50})"));
  expect_same(*make(tiny("distilbert")),
              *make(R"({"model_type":"distilbert","hidden_size":32,"num_attention_heads":4,"hidden_dim":48,
    "num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50})"));
  EXPECT_FAILURE(make(with("gpt2", R"("hidden_size":64)")), Exit::usage, HasSubstr("two names of one size"));
  EXPECT_EQ(make(with("gpt2", R"("hidden_size":32)"), {{"n_embd", "64"}})->hidden, 64u) << "the recipe's counts";
}

TEST(FamiliesTest, ActivationsHaveAllTheirNames) {
  for (const char* name :
       {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate", "gelu", "gelu_python"})
    EXPECT_NO_THROW(make(tiny("gpt2"), {{"activation_function", fmt::format("\"{}\"", name)}})) << name;
  for (const char* family : {"bert", "roberta", "xlm-roberta", "camembert"}) {
    EXPECT_NO_THROW(make(tiny(family), {{"hidden_act", "\"gelu_python\""}})) << family;
    EXPECT_FAILURE(make(tiny(family), {{"hidden_act", "\"gelu_new\""}}), Exit::usage, HasSubstr("hidden_act"));
  }
  EXPECT_NO_THROW(make(tiny("modernbert"), {{"hidden_activation", "\"gelu_python\""}}));
}

TEST(FamiliesTest, ArchitecturesNameTheFamilyIfNothingElseDoes) {
  const auto family = [](const char* name) {
    Config config = Config::parse(fmt::format(R"({{"architectures":["{}"]}})", name), "config.json");
    name_family(config);
    return config.text_or("model_type", "none");
  };
  EXPECT_EQ(family("GPT2LMHeadModel"), "gpt2");
  EXPECT_EQ(family("BertForMaskedLM"), "bert");
  EXPECT_EQ(family("DistilBertForSequenceClassification"), "distilbert");
  EXPECT_EQ(family("RobertaModel"), "roberta");
  EXPECT_EQ(family("XLMRobertaForTokenClassification"), "xlm-roberta");
  EXPECT_EQ(family("CamembertForMaskedLM"), "camembert");
  EXPECT_EQ(family("LLaMAForCausalLM"), "llama");
  EXPECT_EQ(family("Qwen2ForCausalLM"), "qwen2");
  EXPECT_EQ(family("Qwen2MoeForCausalLM"), "none");
  EXPECT_EQ(family("T5Model"), "none");
}

// In transformers 5, an untied decoder has its own bias; a tied one has the bias of the predictions.
TEST(FamiliesTest, AnUntiedDecoderHasItsOwnBias) {
  const auto last = [](const char* family, const char* tied) {
    const auto model = make(tiny(family), {{"tie_word_embeddings", tied}});
    std::vector<std::string> names;
    for (const Parameter& p : model->units.back()->parameters()) names.push_back(p.name);
    return names;
  };
  using ::testing::Contains;
  EXPECT_THAT(last("bert", "true"), Contains("cls.predictions.bias"));
  EXPECT_THAT(last("bert", "false"), Contains("cls.predictions.decoder.bias"));
  EXPECT_THAT(last("roberta", "true"), Contains("lm_head.bias"));
  EXPECT_THAT(last("roberta", "false"), Contains("lm_head.decoder.bias"));
}

TEST(FamiliesTest, ASequenceNeedsEnoughPositions) {
  for (const char* family : {"gpt2", "llama"}) {
    EXPECT_FAILURE(make(tiny(family), {}, 25), Exit::usage, AllOf(HasSubstr("data.seq_len is 25"), HasSubstr("24")));
    EXPECT_EQ(make(tiny(family), {}, 24)->max_positions, 24u);
  }
}

TEST(FamiliesTest, AcceptsSlidingWindowsOfAnySize) {
  EXPECT_NO_THROW(make(tiny("qwen2"), {{"use_sliding_window", "true"}, {"sliding_window", "16"}}));
  EXPECT_NO_THROW(make(tiny("qwen2"), {{"use_sliding_window", "false"}, {"sliding_window", "8"}}));
  EXPECT_NO_THROW(make(tiny("mistral"), {{"sliding_window", "8"}}));
  EXPECT_NO_THROW(make(tiny("llama"), {{"sliding_window", "0"}}));
  EXPECT_NO_THROW(make(tiny("mistral"), {{"sliding_window", "null"}}));
}

TEST(FamiliesTest, BothSpellingsDescribeTheSameModel) {
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
  // Either group may have all of them, and both may agree.
  const Overrides older = {{"rope_scaling", R"({"rope_theta":500.0,"type":"linear","factor":2.0})"}};
  const Overrides newer = {{"rope_parameters", R"({"rope_theta":500.0,"type":"linear","factor":2.0})"}};
  expect_same(*make(tiny("llama"), older), *make(tiny("llama"), newer));
  expect_same(*make(tiny("llama"), older), *make(tiny("llama"), {older[0], newer[0]}));
  expect_same(*make(tiny("llama"), {{"rope_parameters", R"({"type":"linear","factor":2.0})"}}),
              *make(tiny("llama"), {{"rope_scaling", R"({"rope_type":"linear","type":"yarn","factor":2.0})"}}));
  // ModernBERT has one of each kind.
  const auto modern = [](const char* keys, const char* value) { return make(tiny("modernbert"), {{keys, value}}); };
  expect_same(*modern("layer_types", R"(["attention","sliding_attention"])"),
              *modern("layer_types", R"(["full_attention","sliding_attention"])"));
  expect_same(*modern("rope_parameters", R"({"full_attention":{"type":"default"},"sliding_attention":{}})"),
              *make(tiny("modernbert")));
  expect_same(
      *make(tiny("modernbert"), {{"global_rope_theta", "900.0"}, {"local_rope_theta", "80.0"}}),
      *modern("rope_parameters", R"({"full_attention":{"rope_theta":900.0},"sliding_attention":{"rope_theta":80.0}})"));
  expect_same(*modern("rope_scaling", R"({"rope_type":"linear","factor":2.0})"),
              *modern("rope_parameters", R"({"full_attention":{"type":"linear","factor":2.0},
                                             "sliding_attention":{"rope_type":"linear","factor":2.0}})"));
  // If the group has no base, transformers 5 uses the one outside of it.
  expect_same(*make(tiny("llama"), {{"rope_theta", "500000.0"}}),
              *make(tiny("llama"), {{"rope_theta", "500000.0"}, {"rope_parameters", R"({"rope_type":"default"})"}}));
}

TEST(FamiliesTest, ReadsTheConfigsOfPublishedModels) {
  // These are all keys of the models' config.json, with small sizes.
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

// The class of a text is computed from a row that sees all of it. That is its last row if rows see only earlier ones.
// This checks every family, as listed by the refusal of an unknown one.
TEST(FamiliesTest, TheFamilyDeterminesTheRowOfATextsClass) {
  std::vector<std::string> families;
  try {
    (void)make(tiny("none"));
  } catch (const Error& error) {
    std::istringstream list(
        std::string(error.what()).substr(std::string_view(error.what()).find("the supported ones are: ") + 24));
    for (std::string name; std::getline(list >> std::ws, name, ',');) families.push_back(name);
  }
  ASSERT_GE(families.size(), 10u);
  std::size_t causal = 0;
  for (const std::string& family : families) {
    const std::string json = family == "modernbert"
                                 ? R"({"model_type":"modernbert","hidden_size":32,"num_attention_heads":4,
            "intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":24,"vocab_size":50})"
                                 : tiny(family);
    const bool last = predicts_next(Config::parse(json, "config.json"));
    EXPECT_EQ(last, !make(json)->bidirectional) << family;
    causal += last ? 1 : 0;
  }
  EXPECT_EQ(causal, 5u) << "gpt2, llama, mistral, qwen2 and qwen3";
}

}  // namespace
}  // namespace strata::models

#include "models/families/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using testing::make;
using testing::Overrides;
using testing::tiny;

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
  for (const auto& [kind, remedy] : {std::pair{"dynamic", "set that"},
                                     {"longrope", "a factor for each frequency"},
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
  // What is given beside it, as every preset has it, is not called unknown.
  refused("llama",
          {{"rope_parameters", R"({"rope_theta":1e5})"}, {"rope_scaling", R"({"rope_type":"linear","factor":2.0})"}},
          "rope_scaling.factor", "beside rope_parameters");
  refused("llama", {{"rope_parameters", R"({"rope_theta":1e5})"}, {"rope_scaling", R"({"factor":2.0})"}},
          "rope_scaling.factor", "beside rope_parameters");
  refused("llama", {{"rope_parameters", R"({"full_attention":{"rope_theta":1e5}})"}}, "rope_parameters.full_attention",
          "modernbert");
  refused("modernbert", {{"rope_scaling", R"({"type":"linear","factor":2.0})"}}, "rope_scaling.type", "rope_type");
  for (const char* ends : {"[[1]]", "\"x\"", "1.5", "true"})
    refused("llama", {{"eos_token_id", ends}}, "eos_token_id", "an integer or a list of integers");
  refused("llama", {{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor", "not built");
  refused("llama", {{"rope_parameters", R"({"rope_theta":1e4,"partial_rotary_factor":0.5})"}},
          "rope_parameters.partial_rotary_factor", "not built");
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
  EXPECT_NO_THROW(make(tiny("llama"), {{"sliding_window", "0"}}));
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
  // Each group alone has all of them; both may say the same.
  const Overrides older = {{"rope_scaling", R"({"rope_theta":500.0,"type":"linear","factor":2.0})"}};
  const Overrides newer = {{"rope_parameters", R"({"rope_theta":500.0,"type":"linear","factor":2.0})"}};
  expect_same(*make(tiny("llama"), older), *make(tiny("llama"), newer));
  expect_same(*make(tiny("llama"), older), *make(tiny("llama"), {older[0], newer[0]}));
  expect_same(*make(tiny("llama"), {{"rope_parameters", R"({"type":"linear","factor":2.0})"}}),
              *make(tiny("llama"), {{"rope_scaling", R"({"rope_type":"linear","type":"yarn","factor":2.0})"}}));
  // ModernBERT's, of each kind.
  const auto modern = [](const char* keys, const char* value) { return make(tiny("modernbert"), {{keys, value}}); };
  expect_same(*modern("rope_parameters", R"({"full_attention":{"type":"default"},"sliding_attention":{}})"),
              *make(tiny("modernbert")));
  expect_same(
      *make(tiny("modernbert"), {{"global_rope_theta", "900.0"}, {"local_rope_theta", "80.0"}}),
      *modern("rope_parameters", R"({"full_attention":{"rope_theta":900.0},"sliding_attention":{"rope_theta":80.0}})"));
  expect_same(*modern("rope_scaling", R"({"rope_type":"linear","factor":2.0})"),
              *modern("rope_parameters", R"({"full_attention":{"type":"linear","factor":2.0},
                                             "sliding_attention":{"rope_type":"linear","factor":2.0}})"));
  // transformers 5 takes a base that its group does not have from beside it.
  expect_same(*make(tiny("llama"), {{"rope_theta", "500000.0"}}),
              *make(tiny("llama"), {{"rope_theta", "500000.0"}, {"rope_parameters", R"({"rope_type":"default"})"}}));
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

// A text's class is read from the row that has read all of it: its last, of models whose rows see what comes before
// them alone. Of every family that there is, as the refusal of another one lists them.
TEST(FamiliesTest, WhichRowHasReadAllOfATextIsTheFamilys) {
  std::vector<std::string> families;
  try {
    (void)make(tiny("none"));
  } catch (const Error& error) {
    std::istringstream list(std::string(error.what()).substr(std::string_view(error.what()).find("these are: ") + 11));
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

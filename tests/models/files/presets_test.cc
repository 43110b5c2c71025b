#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "models/files/config.h"
#include "tests/failure.h"

namespace strata::models {
namespace {

// The number of parameters that follows from a model's architecture. It detects a wrong shape in any preset.
std::int64_t parameters(const Config& c) {
  if (c.require_text("model_type") == "modernbert") {  // the first block has one norm
    const auto width = c.require_int("hidden_size"), inner = c.require_int("intermediate_size");
    const auto words = c.require_int("vocab_size"), layers = c.require_int("num_hidden_layers");
    const auto head = width * width + 2 * width + words;
    return words * width + width + layers * (4 * width * width + 3 * width * inner + 2 * width) - width + head;
  }
  if (c.require_text("model_type") == "gpt2") {
    const auto d = c.require_int("n_embd"), f = 4 * d;
    const auto block = 4 * d + (3 * d * d + 3 * d) + (d * d + d) + (d * f + f) + (f * d + d);
    return (c.require_int("vocab_size") + c.require_int("n_positions")) * d + c.require_int("n_layer") * block + 2 * d;
  }
  const auto d = c.require_int("hidden_size"), f = c.require_int("intermediate_size");
  if (c.bool_or("tie_word_embeddings", false) && c.require_text("hidden_act") == "gelu") {
    const auto rows = c.require_int("vocab_size") + c.require_int("max_position_embeddings");
    const auto block = 4 * (d * d + d) + (d * f + f) + (f * d + d) + 4 * d;
    const auto head = d * d + d + 2 * d + c.require_int("vocab_size");
    return (rows + c.require_int("type_vocab_size") + 2) * d + c.require_int("num_hidden_layers") * block + head;
  }
  const auto heads = c.require_int("num_attention_heads"), head = d / heads;
  const auto q = heads * head, kv = c.require_int("num_key_value_heads") * head;
  const auto bias = c.require_text("model_type") == "qwen2" ? q + 2 * kv : 0;
  const auto block = 2 * d + d * (q + 2 * kv) + bias + q * d + 3 * d * f;
  const auto embedding = c.require_int("vocab_size") * d;
  return (c.bool_or("tie_word_embeddings", false) ? 1 : 2) * embedding + c.require_int("num_hidden_layers") * block + d;
}

TEST(PresetsTest, HaveTheParametersOfTheirModels) {
  // Llama and Qwen are as in the models' cards and checkpoints, and GPT-2 has 50,304 words.
  const std::map<std::string, std::int64_t> expected = {
      {"gpt2-124m", 124475904},
      {"gpt2-350m", 354871296},
      {"gpt2-774m", 774090240},
      {"gpt2-1558m", 1557686400},
      {"llama-1b", 1235814400},
      {"llama-3b", 3212749824},
      {"llama-8b", 8030261248},
      {"llama-70b", 70553706496},
      {"qwen-1.5b", 1543714304},
      {"qwen-7b", 7615616512},
      {"qwen-14b", 14770033664},
      {"tiny-gpt2", 989952},
      {"tiny-llama", 869504},
      // The numbers are those of transformers' BertForMaskedLM and similar classes: the tied decoder counts once, and
      // there is no pooler.
      {"bert-base", 109514298},
      {"roberta-base", 124697433},
      {"xlm-roberta-base", 278295186},
      {"xlm-roberta-large", 560142482},
      {"modernbert-base", 149655232},
  };
  ASSERT_EQ(preset_names().size(), expected.size());
  for (const std::string_view name : preset_names()) {
    const auto config = Config::parse(preset_config(name), std::string(name));
    EXPECT_EQ(parameters(config), expected.at(std::string(name))) << name;
  }
}

TEST(PresetsTest, Llama3ScalesItsRotations) {
  const auto config = Config::parse(preset_config("llama-1b"), "llama-1b");
  EXPECT_EQ(config.require_text("rope_parameters.rope_type"), "llama3");
  EXPECT_EQ(config.require_number("rope_parameters.factor"), 32);
  EXPECT_EQ(config.require_number("rope_parameters.rope_theta"), 500000);
  const auto qwen = Config::parse(preset_config("qwen-1.5b"), "qwen-1.5b");
  EXPECT_EQ(qwen.require_number("rope_parameters.rope_theta"), 1e6);
  EXPECT_EQ(qwen.require_number("rms_norm_eps"), 1e-6);
}

TEST(PresetsTest, AnUnknownNameListsTheKnown) {
  EXPECT_FAILURE(preset_config("gpt3"), Exit::usage,
                 ::testing::AllOf(::testing::HasSubstr("gpt3"), ::testing::HasSubstr("gpt2-124m, gpt2-350m")));
}

}  // namespace
}  // namespace strata::models

#include "runtime/run/generation/generator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/plan/proof/proof.h"
#include "runtime/recipe/load_recipe.h"
#include "runtime/run/evaluator.h"
#include "tests/comm/run_threads.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

struct Family {
  const char *name, *config;
  bool adapts_head = false, dora = false, adapts_blocks = false;
};
// Weights far larger than a training starts with, so that logits differ clearly from token to token.
const Family kFamilies[] = {
    {"gpt2", R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":2,"n_positions":200,"vocab_size":90,
                 "resid_pdrop":0.3,"initializer_range":0.2})"},
    {"llama", R"({"model_type":"llama","hidden_size":48,"num_attention_heads":6,"num_key_value_heads":2,
                  "intermediate_size":64,"num_hidden_layers":2,"max_position_embeddings":200,"vocab_size":90,
                  "tie_word_embeddings":true,"initializer_range":0.2})"},
    {"mistral", R"({"model_type":"mistral","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
                    "head_dim":24,"intermediate_size":64,"num_hidden_layers":2,"max_position_embeddings":200,
                    "vocab_size":90,"sliding_window":11,"initializer_range":0.2})"},
    {"qwen2", R"({"model_type":"qwen2","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":4,
                  "intermediate_size":64,"num_hidden_layers":2,"max_position_embeddings":200,"vocab_size":90,
                  "initializer_range":0.2})"},
    {"qwen2_windows", R"({"model_type":"qwen2","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,
                  "intermediate_size":64,"num_hidden_layers":3,"max_position_embeddings":200,"vocab_size":90,
                  "initializer_range":0.2,"use_sliding_window":true,"sliding_window":11,
                  "layer_types":["full_attention","sliding_attention","full_attention"],
                  "rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":50}})"},
    {"qwen3", R"({"model_type":"qwen3","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
                  "intermediate_size":64,"num_hidden_layers":2,"max_position_embeddings":200,"vocab_size":90,
                  "initializer_range":0.2})"},
    {"llama_adapted_head",
     R"({"model_type":"llama","hidden_size":32,"num_attention_heads":4,"intermediate_size":64,"num_hidden_layers":2,
         "max_position_embeddings":200,"vocab_size":90,"initializer_range":0.2})",
     true},
    {"llama_head_with_dora",
     R"({"model_type":"llama","hidden_size":32,"num_attention_heads":4,"intermediate_size":64,"num_hidden_layers":2,
         "max_position_embeddings":200,"vocab_size":90,"initializer_range":0.2})",
     true, true},
    {"llama_with_dora",
     R"({"model_type":"llama","hidden_size":32,"num_attention_heads":4,"intermediate_size":64,"num_hidden_layers":2,
         "max_position_embeddings":200,"vocab_size":90,"initializer_range":0.2})",
     true, true, true},
};
constexpr std::size_t kLength = 150;  // more than a prompt is read at once
constexpr std::size_t kVocabulary = 90;

using Logits = std::vector<std::vector<float>>;  // after each piece

class GeneratorTest : public testing::TestWithParam<Family> {
 protected:
  GeneratorTest() {
    folder_.write("config.json", GetParam().config);
    for (std::size_t i = 0; i < kLength; ++i)
      tokens_.push_back(static_cast<std::uint32_t>((i * i * 7 + i / 5) % kVocabulary));
    if (GetParam().adapts_head) write_adapter();
  }
  // Adapters of rank 3 for the output layer, and for the blocks if requested.
  void write_adapter() const {
    struct Layer {
      std::string name;
      std::int64_t in, out;
    };
    const bool dora = GetParam().dora;
    std::vector<Layer> layers = {{"lm_head", 32, kVocabulary}};
    for (int block = 0; GetParam().adapts_blocks && block < 2; ++block)
      for (const auto& [name, in, out] : {Layer{"self_attn.q_proj", 32, 32},
                                          {"self_attn.v_proj", 32, 32},
                                          {"self_attn.o_proj", 32, 32},
                                          {"mlp.up_proj", 32, 64},
                                          {"mlp.down_proj", 64, 32}})
        layers.push_back({fmt::format("model.layers.{}.{}", block, name), in, out});
    std::vector<models::TensorSpec> tensors;
    for (const auto& [name, in, out] : layers) {
      const std::string full = "base_model.model." + name;
      tensors.push_back({full + ".lora_A.weight", device::DType::fp32, {3, in}});
      tensors.push_back({full + ".lora_B.weight", device::DType::fp32, {out, 3}});
      if (dora) tensors.push_back({full + ".lora_magnitude_vector", device::DType::fp32, {out}});
    }
    std::string data = models::safetensors_header(tensors);
    std::size_t i = 0;
    for (const models::TensorSpec& tensor : tensors)
      for (std::size_t left = tensor.bytes() / sizeof(float); left > 0; --left, ++i) {
        const float value = 0.5f * std::sin(static_cast<float>(i * i % 97)) + (tensor.shape.size() > 1 ? 0.0f : 1.5f);
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
    folder_.write("adapter/adapter_model.safetensors", data);
    std::string targets;
    for (const Layer& layer : layers) targets += fmt::format("{}\"{}\"", targets.empty() ? "" : ",", layer.name);
    folder_.write("adapter/adapter_config.json",
                  fmt::format(R"({{"peft_type":"LORA","r":3,"lora_alpha":6,"target_modules":[{}],"use_dora":{}}})",
                              targets, dora));
  }
  std::vector<std::string> sets(const char* precision, int stage) const {
    std::vector<std::string> all = {"model.path=" + folder_.path().string(), "model.init=random",
                                    fmt::format("training.precision={}", precision),
                                    fmt::format("zero.stage={}", stage)};
    if (GetParam().adapts_head) all.push_back("adapter.path=" + (folder_.path() / "adapter").string());
    return all;
  }
  // Logits after each piece of the text, on `ranks` ranks.
  Logits logits(const std::vector<std::size_t>& pieces, const char* precision = "fp32", int ranks = 1, int stage = 0,
                int threads = 1) {
    auto given = sets(precision, stage);
    given.push_back(fmt::format("data.seq_len={}", kLength));
    given.push_back(fmt::format("device.threads={}", threads));  // workspaces grow with them on some processors
    const Recipe recipe = load_recipe(std::nullopt, given);
    std::vector<Logits> all(static_cast<std::size_t>(ranks));
    comm::run_threads(ranks, [&](comm::World& world) {
      const Job job = make_job(open_workload(recipe), ranks, capacity_of(recipe.memory, 1), Purpose::generate);
      EXPECT_EQ(find_violation(job.plan, capacity_of(recipe.memory, 1).tier), std::nullopt);
      Generator generator(job, world, threads, *first_weights(job, world, 1, {}));
      std::span<const std::uint32_t> left = tokens_;
      for (const std::size_t n : pieces) {
        const std::span<const float> now = generator.append(left.first(n));
        all[static_cast<std::size_t>(world.rank())].emplace_back(now.begin(), now.end());
        left = left.subspan(n);
      }
      EXPECT_EQ(memory_json(generator.executor().measured_memory(), nullptr), memory_json(job.plan.memory, nullptr));
    });
    for (const Logits& other : all) EXPECT_EQ(other, all[0]) << "every rank must choose the same token";
    return all[0];
  }
  // The mean loss of the text by the full forward.
  double full_forward_loss(const char* precision) {
    std::string bytes;
    for (const std::uint32_t t : tokens_) bytes += {static_cast<char>(t), '\0'};
    auto given = sets(precision, 0);
    given.insert(given.end(), {fmt::format("data.seq_len={}", kLength),
                               "data.validation=" + folder_.write("v.bin", bytes).string()});
    const Recipe recipe = load_recipe(std::nullopt, given);
    double loss = 0;
    comm::run_threads(1, [&](comm::World& world) {
      const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1), Purpose::evaluate);
      loss = Evaluator(job, world, 1, *first_weights(job, world, 1, {})).run([](auto, auto) { return true; })->loss;
    });
    return loss;
  }

  tests::ScratchFolder folder_;
  std::vector<std::uint32_t> tokens_;
};

double loss_of(const std::vector<float>& logits, std::uint32_t label) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(largest));
  return std::log(sum) + static_cast<double>(largest) - static_cast<double>(logits[label]);
}

TEST_P(GeneratorTest, TokenByTokenMatchesTheFullForward) {
  // In 16 bits every product rounds, in another order of sums: a few hundredths of logits of size 10.
  for (const auto& [precision, tolerance] : {std::pair{"fp32", 2e-5}, {"bf16", 5e-2}, {"fp16", 5e-3}}) {
    const Logits each = logits(std::vector<std::size_t>(kLength, 1), precision);
    double loss = 0;
    for (std::size_t i = 0; i + 1 < kLength; ++i) loss += loss_of(each[i], tokens_[i + 1]);
    EXPECT_GT(loss / (kLength - 1), 5) << "far from a uniform guess, whose loss is 4.5";
    EXPECT_NEAR(loss / (kLength - 1), full_forward_loss(precision), tolerance) << precision;
  }
}

TEST_P(GeneratorTest, APromptReadAtOnceGivesTheSameLogits) {
  const Logits each = logits(std::vector<std::size_t>(kLength, 1));
  const std::vector<std::size_t> pieces = {1, 5, 131, 3, 1, 9};
  const Logits some = logits(pieces);
  std::size_t end = 0;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    end += pieces[piece];
    const std::vector<float>&a = some[piece], &b = each[end - 1];
    EXPECT_EQ(std::max_element(a.begin(), a.end()) - a.begin(), std::max_element(b.begin(), b.end()) - b.begin());
    for (std::size_t t = 0; t < kVocabulary; ++t) ASSERT_NEAR(a[t], b[t], 2e-4) << "piece " << piece << " token " << t;
  }
}

TEST_P(GeneratorTest, SameBitsOnAnyRanksStagesAndThreads) {
  const std::vector<std::size_t> pieces = {130, 1, 1, 4, 1};
  for (const char* precision : {"fp32", "bf16"}) {
    const Logits one = logits(pieces, precision);
    EXPECT_EQ(logits(pieces, precision, 1, 0, 3), one);
    EXPECT_EQ(logits(pieces, precision, 3, 3, 1), one);
    EXPECT_EQ(logits(pieces, precision, 2, 1, 2), one);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GeneratorTest, testing::ValuesIn(kFamilies),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace strata::runtime

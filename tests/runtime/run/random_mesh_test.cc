// The numerics contract over random small models and meshes: ranks that share blocks, pipeline stages and data ranks,
// with any ZeRO stage, tier and recomputation, have the bits of one rank with as many virtual shards.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>

#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

class RandomMesh {
 public:
  explicit RandomMesh(unsigned seed) : engine_(seed) {}

  template <typename T>
  T one_of(const std::vector<T>& values) {
    return values[engine_() % values.size()];
  }
  int between(int least, int most) {
    return least + static_cast<int>(engine_() % static_cast<unsigned>(most - least + 1));
  }

  // The golden recipe of an encoder that predicts masked words (in four shards), classes or numbers (in two); or none:
  // a decoder.
  std::optional<const char*> encoder() {
    if (between(0, 3) > 0) return std::nullopt;
    return one_of<const char*>({"bert", "modernbert", "roberta", "distilbert", "class_runs/bert_pairs",
                                "class_runs/modernbert_mean", "class_runs/bert_words",
                                "class_runs/distilbert_regression", "class_runs/roberta_multi"});
  }
  std::vector<std::string> numbers() {
    return {fmt::format("training.precision={}", one_of<const char*>({"fp32", "bf16", "fp32", "fp16"})),
            fmt::format("optimizer.name={}", one_of<const char*>({"adamw", "lion", "sgd"})),
            fmt::format("optimizer.moments={}", one_of<const char*>({"fp32", "bf16", "8bit"})),
            fmt::format("training.micro_batch_size={}", between(1, 3)),
            fmt::format("evaluation.every={}", 2 * between(0, 1))};
  }
  // A model whose heads and widths four shards divide.
  std::vector<std::string> decoder() {
    const int layers = between(1, 4), heads = 4 * between(1, 2), width = 8 * heads;
    std::vector<std::string> sets = {fmt::format("data.seq_len={}", between(9, 24))};
    if (between(0, 1) == 0) {
      sets.insert(sets.end(),
                  {"model.preset=tiny-gpt2", fmt::format("model.config.n_layer={}", layers),
                   fmt::format("model.config.n_embd={}", width), fmt::format("model.config.n_head={}", heads),
                   fmt::format("model.config.vocab_size={}", between(130, 163)), "model.config.n_positions=24",
                   fmt::format("model.config.resid_pdrop={}", 0.1 * between(0, 1)),
                   fmt::format("model.config.attn_pdrop={}", 0.1 * between(0, 1))});
    } else {
      const char* const family = one_of<const char*>({"llama", "qwen2", "qwen3"});
      sets.insert(sets.end(),
                  {"model.preset=tiny-llama", fmt::format("model.config.model_type=\"{}\"", family),
                   fmt::format("model.config.num_hidden_layers={}", layers),
                   fmt::format("model.config.hidden_size={}", 4 * between(5, 20)),
                   fmt::format("model.config.num_attention_heads={}", heads),
                   fmt::format("model.config.num_key_value_heads={}", one_of<int>({1, 2, 4, heads})),
                   "model.config.head_dim=8", fmt::format("model.config.intermediate_size={}", 4 * between(3, 30)),
                   fmt::format("model.config.tie_word_embeddings={}", between(0, 1) == 1),
                   fmt::format("model.config.vocab_size={}", between(130, 163))});
    }
    const bool gpt2 = sets[1] == "model.preset=tiny-gpt2";
    const bool untied = std::ranges::find(sets, "model.config.tie_word_embeddings=false") != sets.end();
    const std::vector<std::string> some = train_some(gpt2, layers, untied);
    sets.insert(sets.end(), some.begin(), some.end());
    return sets;
  }
  // Trains the whole model, the part that is not frozen, or adapters.
  std::vector<std::string> train_some(bool gpt2, int layers, bool untied) {
    switch (between(0, 3)) {
      case 0: {
        const std::string block = (gpt2 ? "*.h." : "*.layers.") + std::to_string(between(0, layers - 1)) + ".*";
        // With the last, backward ends within the first block.
        const std::string below_mlp =
            gpt2 ? R"("*.w?e.*", "*.h.0.attn.*", "*.h.0.ln_*")"
                 : R"("*.embed_tokens.*", "*.layers.0.self_attn.*", "*.layers.0.*norm*", "*.layers.0.mlp.up*")";
        return {fmt::format("training.freeze=[{}]",
                            one_of<std::string>({'"' + block + '"', "\"*.mlp.*\"",
                                                 gpt2 ? "\"*.wte.*\"" : "\"*.embed_tokens.*\"", below_mlp}))};
      }
      case 1:
        return {"adapter.kind=lora", fmt::format("adapter.rank={}", between(1, 6)),
                "adapter.target_modules=" +
                    (gpt2 ? one_of<std::string>({"all-linear", R"(["c_fc"])", R"(["c_attn", "mlp.c_proj"])"})
                     : untied && between(0, 1) == 1
                         ? R"(["o_proj", "lm_head"])"
                         : one_of<std::string>({"all-linear", R"(["down_proj"])", R"(["o_proj", "up_proj"])"})),
                // Dropout counts rows in fours, and widths of Llamas are no multiple of 16.
                fmt::format("adapter.dropout={}", gpt2 ? 0.25 * between(0, 1) : 0),
                fmt::format("adapter.rslora={}", between(0, 1) == 1),
                fmt::format("adapter.dora={}", between(0, 1) == 1)};
      default:
        return {};
    }
  }
  // How ranks split the model, and the number of ranks.
  std::pair<int, std::vector<std::string>> mesh(int shards, int units, bool divides_rows) {
    const int tensor = std::min(shards, one_of<int>({1, 2, 2, 4})), stages = between(1, std::min(units, 3)),
              data = one_of<int>({1, 2, 4});
    std::vector<std::string> sets = {
        fmt::format("parallel.tensor={}", tensor),
        fmt::format("parallel.stages={}", stages),
        fmt::format("training.gradient_accumulation_steps={}", 4 / data),
        fmt::format("parallel.sequence={}", divides_rows && between(0, 1) == 0),
        fmt::format("parallel.schedule={}", one_of<const char*>({"1f1b", "all_forward_all_backward"})),
        fmt::format("zero.stage={}", between(0, 3)),
        fmt::format("training.recompute={}", one_of<const char*>({"none", "block", "sqrt"})),
        fmt::format("memory.prefetch={}", between(0, 3))};
    const std::vector<std::vector<std::string>> tiers = {
        {},
        {"zero.parameters=host"},
        {"zero.optimizer=host"},
        {"zero.parameters=host", "zero.gradients=host", "zero.optimizer=host"},
        {"zero.parameters=nvme", "zero.gradients=host", "zero.optimizer=nvme"}};
    for (const std::string& set : one_of(tiers)) sets.push_back(set);
    // Pieces of a stage need a unit each, and a multiple of the stages' number of micro-batches.
    if (stages == 2 && 4 / data % stages == 0 && units >= 4 && between(0, 1) == 0) {
      sets.push_back("parallel.schedule=interleaved");
      sets.push_back(fmt::format("parallel.chunks={}", between(2, units / 2)));
    }
    if (const bool recomputes = sets[6] != "training.recompute=none"; recomputes && between(0, 2) == 0)
      sets.push_back("zero.activations=host");
    return {tensor * stages * data, sets};
  }

 private:
  std::mt19937 engine_;
};

// Rows of a micro-batch.
int micro_batch_rows(const std::vector<std::string>& sets) {
  int rows = 1;
  for (const std::string& set : sets)
    for (const std::string_view key : {"data.seq_len=", "training.micro_batch_size="})
      if (set.starts_with(key)) rows *= std::stoi(set.substr(key.size()));
  return rows;
}

// Blocks, embedding and head.
int units_of(const std::vector<std::string>& sets) {
  for (const std::string& set : sets)
    for (const std::string_view key : {"model.config.n_layer=", "model.config.num_hidden_layers="})
      if (set.starts_with(key)) return 2 + std::stoi(set.substr(key.size()));
  return 0;
}

// Runs 20 cases, or N with STRATA_MESHES=N.
TEST(RandomMeshes, HaveTheBitsOfOneRank) {
  tests::ScratchFolder folder;
  std::string bytes;
  for (std::uint32_t i = 0; i < 1500; ++i) {
    bytes += static_cast<char>((i * i * 7 + i / 5) % 130);
    bytes += '\0';
  }
  folder.write("tokens.bin", bytes);
  const char* const asked = std::getenv("STRATA_MESHES");
  const int cases = asked ? std::atoi(asked) : 20;
  for (int seed = 1; seed <= cases; ++seed) {
    RandomMesh random(static_cast<unsigned>(seed));
    std::vector<std::string> sets = random.numbers();
    const auto encoder = random.encoder();
    const std::filesystem::path golden = tests::source_dir() / "tests/golden" / encoder.value_or("");
    const auto recipe = encoder ? std::optional(golden / "recipe.toml") : std::nullopt;
    const int shards = encoder && std::string_view(*encoder).starts_with("class") ? 2 : 4;
    const std::string tokens = ((encoder ? golden : folder.path()) / "tokens.bin").string();
    if (!encoder) {
      const std::vector<std::string> decoder = random.decoder();
      sets.insert(sets.end(), decoder.begin(), decoder.end());
    }
    sets.insert(sets.end(), {"data.train=" + tokens, "data.validation=" + tokens, "training.max_steps=3",
                             "optimizer.learning_rate=2e-3", fmt::format("parallel.tensor_shards={}", shards),
                             "training.gradient_accumulation_steps=4", "memory.nvme=" + folder.path().string()});
    const Trained alone = train_in_threads(recipe, sets, 1);
    const auto [ranks, mesh] =
        random.mesh(shards, encoder ? 4 : units_of(sets), encoder || micro_batch_rows(sets) % 4 == 0);
    sets.insert(sets.end(), mesh.begin(), mesh.end());
    const Trained split = train_in_threads(recipe, sets, ranks);
    const std::string text =
        fmt::format("case {}: {}, {} ranks, {}", seed, encoder.value_or("decoder"), ranks, fmt::join(sets, " "));
    EXPECT_EQ(split.loss_hex, alone.loss_hex) << text;
    EXPECT_EQ(split.weights_hash, alone.weights_hash) << text;
    EXPECT_EQ(split.evaluations, alone.evaluations) << text;
    // An evaluation has a plan of its own.
    EXPECT_TRUE(!split.evaluations.empty() || (split.memory_as_planned && split.bytes_as_planned)) << text;
  }
}

}  // namespace
}  // namespace strata::runtime

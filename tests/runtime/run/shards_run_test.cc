// parallel.tensor_shards: one, two or four virtual shards give the same model up to rounding. For a given number of
// shards, the bits do not depend on stage, tier, order, recomputation and number of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/same_bits.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

const std::vector<std::string> kGpt2 = {
    "model.preset=tiny-gpt2",      "model.config.n_layer=2",       "model.config.n_embd=48",
    "model.config.n_head=4",       "model.config.vocab_size=130",  "model.config.n_positions=24",
    "model.config.attn_pdrop=0.1", "model.config.resid_pdrop=0.1", "model.config.embd_pdrop=0.1"};
const std::vector<std::string> kLlama = {"model.preset=tiny-llama",
                                         "model.config.num_hidden_layers=2",
                                         "model.config.hidden_size=40",
                                         "model.config.num_attention_heads=8",
                                         "model.config.num_key_value_heads=4",
                                         "model.config.head_dim=8",
                                         "model.config.intermediate_size=72",
                                         "model.config.vocab_size=130",
                                         "model.config.attention_dropout=0.1"};

std::vector<std::string> joined(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}
const std::vector<std::string> kQwen3 = joined(kLlama, {"model.config.model_type=\"qwen3\""});

struct ShardsRunCase {
  const char* name;
  std::vector<std::string> sets;
  const char* golden = "";  // the golden recipe of an encoder
};
// In the last model, some tensors are frozen: complete ones and cut ones.
const std::vector<std::string> kPartly = joined(
    kGpt2, {R"(training.freeze=["*.ln_1.*", "*.h.0.mlp.*", "*.h.1.attn.c_attn.bias", "*.h.1.mlp.c_proj.weight"])"});
// Adapters with their own dropout. In the second model, some layers of a block have no adapter, one is fully trained,
// and adapter ranks differ.
const std::vector<std::string> kAdapted = joined(kGpt2, {"adapter.kind=lora", "adapter.rank=3", "adapter.dropout=0.2"});
const std::vector<std::string> kSomeAdapted = joined(
    kQwen3,
    {"adapter.kind=lora", "adapter.rank=4", R"(adapter.target_modules=["q_proj", "v_proj", "o_proj", "up_proj"])",
     R"(adapter.modules_to_save=["k_proj"])", "adapter.rank_pattern={\"v_proj\" = 2}", "adapter.rslora=true"});
// DoRA's magnitudes are cut with outputs and whole with inputs; of the second's blocks some layers have none.
const std::vector<std::string> kDora =
    joined(kGpt2, {"adapter.kind=lora", "adapter.rank=3", "adapter.dropout=0.2", "adapter.dora=true"});
const std::vector<std::string> kSomeDora =
    joined(kQwen3, {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true",
                    R"(adapter.target_modules=["q_proj", "k_proj", "down_proj", "gate_proj"])"});
// On a base in 4 bits: the 64 elements that share a scale lie in one shard, the blocks of 16,384 do not.
const std::vector<std::string> kOn4Bits =
    joined(kGpt2, {"model.config.n_embd=256", "model.config.n_layer=1", "model.config.n_head=4",
                   "model.frozen_format=nf4", "adapter.kind=lora", "adapter.rank=3"});
const std::vector<std::string> kOnPlain4Bits =
    joined(kLlama, {"model.config.hidden_size=256", "model.config.head_dim=32", "model.config.num_hidden_layers=1",
                    "model.config.intermediate_size=512", "model.frozen_format=nf4", "model.double_quant=false",
                    "adapter.kind=lora", "adapter.rank=4", R"(adapter.target_modules=["q_proj", "down_proj"])"});
// Without an adapter: some layers are in 4 bits, the others are trained, and blocks have both, or one of them.
const std::vector<std::string> kPartlyIn4Bits =
    joined(kGpt2, {"model.config.n_embd=256", "model.frozen_format=nf4",
                   R"(training.freeze=["*.h.0.*", "*.h.1.mlp.*", "*.h.1.attn.c_attn.bias"])"});
// Several shards read one key head: two of four, or all of them if there is a single head.
const std::vector<std::string> kFewKeys = joined(kLlama, {"model.config.num_key_value_heads=2"});
const std::vector<std::string> kOneKey =
    joined(kLlama, {"model.config.num_key_value_heads=1", "model.config.model_type=\"qwen3\""});
const ShardsRunCase kShardsRunCases[] = {
    {"gpt2", kGpt2},
    {"llama", kLlama},
    {"qwen2", joined(kLlama, {"model.config.model_type=\"qwen2\""})},
    {"qwen3", kQwen3},
    {"gpt2, partly frozen", kPartly},
    {"gpt2, adapted", kAdapted},
    {"qwen3, some adapted", kSomeAdapted},
    {"gpt2, dora", kDora},
    {"qwen3, some dora", kSomeDora},
    {"qwen3, one key, dora", joined(kOneKey, {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true"})},
    {"llama, on 4 bits, dora", joined(kOnPlain4Bits, {"adapter.target_modules=all-linear", "adapter.dora=true"})},
    {"qwen3, one key, dora of keys",
     joined(kOneKey, {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true",
                      R"(adapter.target_modules=["k_proj", "v_proj"])", "adapter.layers_to_transform=[1]"})},
    {"bert, dora", {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true"}, "bert"},
    {"modernbert, dora", {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true"}, "modernbert"},
    {"llama, output layer adapted", joined(kLlama, {"adapter.kind=lora", "adapter.rank=3", "adapter.dropout=0.2",
                                                    R"(adapter.target_modules=["q_proj", "up_proj", "lm_head"])"})},
    {"llama, output layer, dora", joined(kLlama, {"adapter.kind=lora", "adapter.rank=3", "adapter.dora=true",
                                                  R"(adapter.target_modules=["up_proj", "lm_head"])"})},
    {"llama, output layer, dora with dropout",
     joined(kLlama, {"adapter.kind=lora", "adapter.rank=3", "adapter.dora=true", "adapter.dropout=0.2",
                     R"(adapter.target_modules=["q_proj", "lm_head"])"})},
    {"bert, words, dora",
     {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true", "model.init=random",
      "model.config.tie_word_embeddings=false", R"(adapter.target_modules=["transform.dense", "decoder"])"},
     "bert"},
    {"bert, words adapted",
     {"adapter.kind=lora", "adapter.rank=4", "model.init=random", "model.config.tie_word_embeddings=false",
      R"(adapter.target_modules=["query", "transform.dense", "decoder"])"},
     "bert"},
    {"llama, adapted", joined(kLlama, {"adapter.kind=lora", "adapter.rank=5"})},
    // Backward ends within the lowest block that trains.
    {"llama, down adapted",
     joined(kLlama, {"adapter.kind=lora", "adapter.rank=4", R"(adapter.target_modules=["down_proj"])"})},
    {"qwen3, one key, norms of heads",
     joined(kOneKey, {R"(training.freeze=["*embed*", "model.norm*", "*.layers.0.*", "*_layernorm*", "*_proj*"])"})},
    {"qwen2, from the MLP's norm",
     joined(kLlama, {"model.config.model_type=\"qwen2\"",
                     R"(training.freeze=["*embed*", "*.layers.0.*", "*.self_attn.*", "*.input_layernorm*"])"})},
    {"gpt2, from the projection",
     joined(kGpt2, {R"(training.freeze=["*.w?e.*", "*.h.0.*", "*.ln_1.*", "*.c_attn.*"])"})},
    {"bert, up adapted",
     {"adapter.kind=lora", "adapter.rank=4", R"(adapter.target_modules=["intermediate.dense"])"},
     "bert"},
    {"gpt2, on 4 bits", kOn4Bits},
    {"llama, on 4 bits", kOnPlain4Bits},
    {"gpt2, partly in 4 bits", kPartlyIn4Bits},
    {"qwen2, few keys", joined(kFewKeys, {"model.config.model_type=\"qwen2\""})},
    {"qwen3, one key, some adapted",
     joined(kOneKey, {"adapter.kind=lora", "adapter.rank=4", R"(adapter.target_modules=["k_proj", "v_proj"])",
                      R"(adapter.modules_to_save=["q_proj", "k_norm"])", "adapter.rank_pattern={\"v_proj\" = 2}"})},
    {"llama, few keys, on 4 bits", joined(kOnPlain4Bits, {"model.config.num_key_value_heads=2",
                                                          "adapter.target_modules=all-linear", "adapter.dropout=0.2"})},
    {"bert, adapted", {"adapter.kind=lora", "adapter.rank=4"}, "bert"},
    {"modernbert, adapted", {"adapter.kind=lora", "adapter.rank=4"}, "modernbert"},
    {"bert", {"model.config.attention_probs_dropout_prob=0.1", "model.config.hidden_dropout_prob=0.1"}, "bert"},
    {"roberta, partly frozen",
     {R"(training.freeze=["*.attention.output.*", "*.layer.0.*", "*.layer.1.intermediate.dense.weight"])"},
     "roberta"},
    {"modernbert", {}, "modernbert"},
    // Backward ends at a block's last matrix, and ranks that share the block exchange nothing in it.
    {"llama, down trained",
     joined(kLlama, {R"(training.freeze=["*embed*", "*.0.*", "*attn*", "*_layernorm*", "*.gate_*", "*.up_*"])"})}};

class ShardsRun : public testing::TestWithParam<std::tuple<std::size_t, const char*>> {
 protected:
  ShardsRun() { write_small_tokens(folder_); }
  static const ShardsRunCase& of() { return kShardsRunCases[std::get<0>(GetParam())]; }
  static std::optional<std::filesystem::path> recipe() {
    if (std::string_view(of().golden).empty()) return std::nullopt;
    return tests::source_dir() / "tests/golden" / of().golden / "recipe.toml";
  }
  std::vector<std::string> sets(int shards, int ranks, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = of().sets;
    if (!recipe())
      all = joined(all, {fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()), "data.seq_len=16",
                         "training.micro_batch_size=2"});
    return joined(
        joined(all, {"training.max_steps=3", fmt::format("training.precision={}", std::get<1>(GetParam())),
                     "optimizer.learning_rate=2e-3", fmt::format("training.gradient_accumulation_steps={}", 4 / ranks),
                     fmt::format("parallel.tensor_shards={}", shards),
                     fmt::format("memory.nvme={}", folder_.path().string())}),
        more);
  }
  Trained train(int shards, int ranks = 1, const std::vector<std::string>& more = {}, std::size_t tile = 0,
                std::size_t chunk = 0) const {
    return train_in_threads(recipe(), sets(shards, ranks, more), ranks, {}, tile, chunk);
  }
  bool fp32() const { return std::string_view(std::get<1>(GetParam())) == "fp32"; }

  tests::ScratchFolder folder_;
};

// Dropout drops the same, since it counts whole rows and all heads.
TEST_P(ShardsRun, LossesAgreeUpToRounding) {
  const Trained whole = train(1);
  for (const int shards : {2, 4}) {
    const Trained split = train(shards);
    ASSERT_EQ(split.steps.size(), whole.steps.size());
    for (std::size_t i = 0; i < whole.steps.size(); ++i) {
      EXPECT_NEAR(split.steps[i].loss, whole.steps[i].loss, (fp32() ? 2e-6 : 4e-3) * whole.steps[i].loss)
          << shards << " shards, step " << i;
      EXPECT_NEAR(split.steps[i].grad_norm, whole.steps[i].grad_norm, (fp32() ? 2e-5 : 2e-2) * whole.steps[i].grad_norm)
          << shards << " shards, step " << i;
    }
    if (fp32()) {
      EXPECT_NE(split.weights_hash, whole.weights_hash) << "sums have a different order";
    }
    EXPECT_TRUE(split.memory_as_planned);
  }
}

// The hash is that of the whole model, and weights are equal in any number of shards before the first update.
TEST_P(ShardsRun, StartsWithTheSameWeightsInAnyNumberOfShards) {
  const std::vector<std::string> still = {"training.max_steps=1", "optimizer.learning_rate=0",
                                          "scheduler.warmup_steps=0"};
  const std::string hash = train(1, 1, still).weights_hash;
  EXPECT_EQ(train(2, 1, still).weights_hash, hash);
  EXPECT_EQ(train(4, 1, still).weights_hash, hash);
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(train(2, 4, joined(still, {fmt::format("zero.stage={}", stage)})).weights_hash, hash) << stage;
}

// A base is hashed as it is stored: in 4 bits, the same codes and scales in any number of shards. Only one shard stores
// the 8-bit scales of double quantisation, several have fp32.
TEST(ShardsOfABase, HaveTheHashOfWhatIsStored) {
  const tests::ScratchFolder folder;
  write_small_tokens(folder);
  for (const std::vector<std::string>& model :
       {kAdapted, kOn4Bits, kOnPlain4Bits, joined(kOnPlain4Bits, {"model.config.intermediate_size=1536"})}) {
    const auto hash_of = [&](int shards, int ranks = 1, int tensor = 1) {
      std::string hash;
      train_in_threads(
          std::nullopt,
          joined(model, {fmt::format("data.train={}", (folder.path() / "tokens.bin").string()), "data.seq_len=16",
                         "training.max_steps=1", "training.precision=bf16", "zero.stage=3",
                         fmt::format("training.gradient_accumulation_steps={}", 4 * tensor / ranks),
                         fmt::format("parallel.tensor_shards={}", shards), fmt::format("parallel.tensor={}", tensor)}),
          ranks, [&](Trainer& trainer, const Job&, int rank) {
            const std::string base = trainer.base_hash();
            if (rank == 0) hash = base;
          });
      return hash;
    };
    const std::string whole = hash_of(1), cut = hash_of(2), name = fmt::format("{}", fmt::join(model, " "));
    EXPECT_EQ(hash_of(1, 2), whole) << name;
    if (model == kOn4Bits)
      EXPECT_NE(cut, whole) << name;
    else
      EXPECT_EQ(cut, whole) << name;
    EXPECT_EQ(hash_of(4), cut) << name;
    EXPECT_EQ(hash_of(4, 2), cut) << name;
    EXPECT_EQ(hash_of(4, 2, 2), cut) << name;
    EXPECT_EQ(hash_of(2, 4, 2), cut) << name;
  }
}

TEST_P(ShardsRun, SameBitsWhateverThePlan) {
  expect_same_whatever_the_plan(train(2), [&](int ranks, const std::vector<std::string>& more, std::size_t tile,
                                              std::size_t chunk) { return train(2, ranks, more, tile, chunk); });
}

TEST_P(ShardsRun, SameBitsInEveryTier) {
  expect_same_in_every_tier(train(4), [&](int ranks, const std::vector<std::string>& more, std::size_t tile,
                                          std::size_t chunk) { return train(4, ranks, more, tile, chunk); });
}

// Stages have different numbers of blocks, and one has none. Tables may be tied over them.
TEST_P(ShardsRun, SameBitsInStages) {
  const struct {
    int ranks, stages;
    const char* set;
  } cases[] = {{2, 2, "zero.stage=0"}, {4, 2, "zero.stage=3"}, {3, 3, "zero.stage=0"}};
  const bool adapts_output = std::ranges::any_of(of().sets, [](const std::string& set) {
    return set.find("lm_head") != std::string::npos || set.find("decoder") != std::string::npos;
  });
  for (const char* tied : {"false", "true"}) {
    if (adapts_output && std::string_view(tied) == "true") continue;  // a tied one has no adapter
    std::vector<std::string> model = {fmt::format("model.config.tie_word_embeddings={}", tied)};
    if (recipe() && std::string_view(tied) == "false")
      model.emplace_back("model.init=random");  // files of tied encoders have no decoder
    const Trained alone = train(2, 1, model);
    for (const auto& [ranks, stages, set] : cases) {
      const int steps = 4 * stages / ranks;
      const Trained staged = train(2, ranks,
                                   joined(model, {fmt::format("parallel.stages={}", stages),
                                                  fmt::format("training.gradient_accumulation_steps={}", steps), set}));
      EXPECT_EQ(staged.loss_hex, alone.loss_hex) << stages << " stages on " << ranks << ", tied: " << tied;
      EXPECT_EQ(staged.weights_hash, alone.weights_hash) << stages << " stages on " << ranks << ", tied: " << tied;
    }
  }
}

// Ranks share each layer: the bits are those of one rank with as many shards, whatever else the plan says.
TEST_P(ShardsRun, SameBitsOverRanks) {
  const std::string nvme = fmt::format("memory.nvme={}", folder_.path().string());
  const struct {
    int ranks, tensor, stages;
    std::vector<std::string> sets = {};
  } cases[] = {
      {2, 2, 1},
      {4, 4, 1, {"zero.stage=3"}},
      {4, 2, 1, {"zero.stage=1", "training.recompute=block"}},
      {4, 2, 1, {"zero.stage=2", "zero.optimizer=host"}},
      {8, 4, 1, {"zero.stage=3", "training.recompute=sqrt", "zero.activations=host"}},
      {8, 2, 1, {"zero.stage=3", "zero.parameters=nvme", "zero.gradients=host", "zero.optimizer=nvme", nvme}},
      {2, 2, 1, {"zero.parameters=host", "zero.gradients=host", "zero.optimizer=host", "memory.order=vertical"}},
      {4, 2, 2},
      {8, 2, 2, {"zero.stage=3", "training.recompute=block"}},
      {8, 4, 2, {"parallel.schedule=all_forward_all_backward"}},
  };
  const Trained alone = train(4);
  bool sequence = false;
  for (const auto& [ranks, tensor, stages, sets] : cases) {
    sequence = !sequence;  // every second case; the next two tests have all of it
    const std::string name = fmt::format("{} ranks, {} per layer, {} stages, {}, rows divided: {}", ranks, tensor,
                                         stages, fmt::join(sets, ", "), sequence);
    const std::vector<std::string> over = {
        fmt::format("training.gradient_accumulation_steps={}", 4 * tensor * stages / ranks),
        fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.stages={}", stages),
        fmt::format("parallel.sequence={}", sequence)};
    const Trained shared = train_in_threads(recipe(), this->sets(4, 1, joined(over, sets)), ranks);
    EXPECT_TRUE(shared.memory_as_planned && shared.bytes_as_planned) << name;
    EXPECT_EQ(shared.loss_hex, alone.loss_hex) << name;
    EXPECT_EQ(shared.weights_hash, alone.weights_hash) << name;
    EXPECT_EQ(shared.steps.back().grad_norm, alone.steps.back().grad_norm) << name;
  }
}

// Ranks divide the rows between products: the same bits, in less memory.
TEST_P(ShardsRun, SameBitsWithDividedRows) {
  const auto over = [&](int tensor, bool sequence, const std::vector<std::string>& more) {
    return train_in_threads(
        recipe(),
        sets(4, 1,
             joined({fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.sequence={}", sequence)}, more)),
        tensor);
  };
  for (const char* recompute : {"training.recompute=none", "training.recompute=block"}) {
    const Trained alone = train(4);
    for (const int tensor : {2, 4}) {
      const Trained whole = over(tensor, false, {recompute}), divided = over(tensor, true, {recompute});
      EXPECT_TRUE(divided.memory_as_planned && divided.bytes_as_planned) << tensor << ", " << recompute;
      EXPECT_EQ(divided.loss_hex, alone.loss_hex) << tensor << ", " << recompute;
      EXPECT_EQ(divided.weights_hash, alone.weights_hash) << tensor << ", " << recompute;
      EXPECT_EQ(divided.steps.back().grad_norm, alone.steps.back().grad_norm) << tensor << ", " << recompute;
      EXPECT_EQ(whole.weights_hash, alone.weights_hash) << tensor << ", " << recompute;
    }
  }
}

// The first models run in both precisions and the others in one of them in turn, so that each family and feature meets
// both.
std::vector<std::tuple<std::size_t, const char*>> cases_and_precisions() {
  std::vector<std::tuple<std::size_t, const char*>> all;
  for (std::size_t i = 0; i < std::size(kShardsRunCases); ++i)
    for (const bool narrow : {false, true})
      if (i < 4 || (i % 2 == 1) == narrow) all.emplace_back(i, narrow ? "bf16" : "fp32");
  return all;
}
INSTANTIATE_TEST_SUITE_P(, ShardsRun, testing::ValuesIn(cases_and_precisions()));

// Eight ranks of one layer, each with one head; of 131 words the last shard has 12, the others 17.
TEST(ShardsOfEight, SameBitsAtEveryDegree) {
  const tests::ScratchFolder folder;
  write_small_tokens(folder);
  const std::vector<std::string> models[] = {
      joined(kGpt2, {"model.config.n_head=8", "model.config.n_embd=64", "model.config.vocab_size=131"}),
      joined(kLlama, {"model.config.num_key_value_heads=8", "model.config.vocab_size=131"}),
      joined(kFewKeys, {"model.config.model_type=\"qwen3\""})};
  for (const std::vector<std::string>& model : models)
    for (const char* precision : {"fp32", "bf16"}) {
      const auto train = [&](int ranks, int tensor, const char* stage, bool sequence = false) {
        return train_in_threads(
            std::nullopt,
            joined(model, {fmt::format("data.train={}", (folder.path() / "tokens.bin").string()), "data.seq_len=16",
                           "training.micro_batch_size=2", "training.max_steps=3", "parallel.tensor_shards=8", stage,
                           fmt::format("training.precision={}", precision), "optimizer.learning_rate=2e-3",
                           fmt::format("training.gradient_accumulation_steps={}", 2 * tensor / ranks),
                           fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.sequence={}", sequence)}),
            ranks);
      };
      const Trained alone = train(1, 1, "zero.stage=0");
      EXPECT_EQ(train(8, 8, "zero.stage=0", true).weights_hash, alone.weights_hash) << precision << ", rows divided";
      for (const auto& [ranks, tensor, stage] :
           {std::tuple{2, 2, "zero.stage=0"}, {4, 4, "zero.stage=2"}, {8, 8, "zero.stage=3"}, {8, 4, "zero.stage=3"}}) {
        const Trained shared = train(ranks, tensor, stage);
        EXPECT_TRUE(shared.memory_as_planned && shared.bytes_as_planned) << precision << tensor;
        EXPECT_EQ(shared.loss_hex, alone.loss_hex) << precision << ", " << tensor << " per layer";
        EXPECT_EQ(shared.weights_hash, alone.weights_hash) << precision << ", " << tensor << " per layer";
      }
    }
}

// A step of one micro-batch on one data rank has no sums. Gradients are used in place, and a tied table has two.
TEST(ShardsOfOneMicroBatch, SameBitsAtEveryDegree) {
  const tests::ScratchFolder folder;
  write_small_tokens(folder);
  for (const std::vector<std::string>& model : {kGpt2, joined(kLlama, {"model.config.tie_word_embeddings=true"})}) {
    const auto train = [&](int tensor) {
      return train_in_threads(
          std::nullopt,
          joined(model, {fmt::format("data.train={}", (folder.path() / "tokens.bin").string()), "data.seq_len=16",
                         "training.max_steps=3", "parallel.tensor_shards=4", "optimizer.learning_rate=2e-3",
                         fmt::format("parallel.tensor={}", tensor)}),
          tensor);
    };
    const Trained alone = train(1);
    for (const int tensor : {2, 4}) {
      const Trained shared = train(tensor);
      EXPECT_EQ(shared.weights_hash, alone.weights_hash) << tensor;
      for (std::size_t i = 0; i < alone.steps.size(); ++i)
        EXPECT_EQ(shared.steps[i].grad_norm, alone.steps[i].grad_norm) << tensor << " per layer, step " << i;
    }
  }
}

}  // namespace
}  // namespace strata::runtime

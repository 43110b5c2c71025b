// model.frozen_format = "nf4" stores frozen matrices in 4 bits, and results do not depend on stage, tier, order,
// recomputation and number of ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <optional>

#include "base/error.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/runtime/same_bits.h"
#include "tests/runtime/saved_run.h"
#include "tests/runtime/training.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;

struct QuantisedRunCase {
  const char* name;
  std::vector<std::string> sets;
};

// The sizes are not multiples of a block, one matrix has several blocks, and some matrices are trained.
const QuantisedRunCase kQuantisedRunCases[] = {
    {"gpt2",
     {"model.preset=tiny-gpt2", "model.config.n_layer=3", "model.config.n_embd=80", "model.config.n_head=5",
      "model.config.vocab_size=130", "model.config.n_positions=24", "model.config.attn_pdrop=0.1",
      R"(training.freeze=["*.w?e.*", "*.h.[01].*", "*.h.2.attn.c_attn.*"])"}},
    {"llama",
     {"model.preset=tiny-llama", "model.config.num_hidden_layers=3", "model.config.hidden_size=72",
      "model.config.num_attention_heads=9", "model.config.num_key_value_heads=3", "model.config.head_dim=8",
      "model.config.intermediate_size=264", "model.config.vocab_size=130", "model.config.attention_dropout=0.1",
      R"(training.freeze=["*.embed_tokens.*", "*.k_proj.weight", "*.layers.[02].mlp.*", "*.layers.1.self_attn.*"])"}},
    {"adapters",
     {"model.preset=tiny-llama", "model.config.num_hidden_layers=2", "model.config.hidden_size=72",
      "model.config.num_attention_heads=9", "model.config.num_key_value_heads=3", "model.config.head_dim=8",
      "model.config.intermediate_size=264", "model.config.vocab_size=130", "adapter.kind=lora", "adapter.rank=4"}},
    {"DoRA",
     {"model.preset=tiny-llama", "model.config.num_hidden_layers=2", "model.config.hidden_size=72",
      "model.config.num_attention_heads=9", "model.config.num_key_value_heads=3", "model.config.head_dim=8",
      "model.config.intermediate_size=264", "model.config.vocab_size=130", "adapter.kind=lora", "adapter.rank=4",
      "adapter.dora=true"}},
};

class QuantisedRun : public testing::TestWithParam<std::tuple<std::size_t, const char*, const char*>> {
 protected:
  QuantisedRun() { write_small_tokens(folder_); }
  std::vector<std::string> sets(int ranks, const std::vector<std::string>& more = {}) const {
    const auto& [number, precision, double_quant] = GetParam();
    std::vector<std::string> all = kQuantisedRunCases[number].sets;
    for (const std::string& set :
         {fmt::format("data.train={}", (folder_.path() / "tokens.bin").string()), std::string("data.seq_len=16"),
          std::string("training.max_steps=3"), std::string("training.micro_batch_size=2"),
          fmt::format("training.precision={}", precision), std::string("optimizer.learning_rate=2e-3"),
          fmt::format("training.gradient_accumulation_steps={}", 4 / ranks), std::string("model.frozen_format=nf4"),
          fmt::format("model.double_quant={}", double_quant), fmt::format("memory.nvme={}", folder_.path().string())})
      all.push_back(set);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Trained whole(const std::vector<std::string>& more = {}) const {
    return train_in_threads(std::nullopt, sets(1, more), 1);
  }

  tests::ScratchFolder folder_;
};

TEST_P(QuantisedRun, SameBitsWhateverThePlan) {
  const Trained first = whole();
  EXPECT_NE(first.loss_hex[1], first.loss_hex[2]) << "the weights must change";
  EXPECT_NE(first.loss_hex[0], whole({"model.frozen_format=compute"}).loss_hex[0]) << "4 bits must make a difference";
  expect_same_whatever_the_plan(
      first, [&](int ranks, const std::vector<std::string>& more, std::size_t tile, std::size_t chunk) {
        return train_in_threads(std::nullopt, sets(ranks, more), ranks, {}, tile, chunk);
      });
}

TEST_P(QuantisedRun, SameBitsInEveryTier) {
  expect_same_in_every_tier(whole(),
                            [&](int ranks, const std::vector<std::string>& more, std::size_t tile, std::size_t chunk) {
                              return train_in_threads(std::nullopt, sets(ranks, more), ranks, {}, tile, chunk);
                            });
}

INSTANTIATE_TEST_SUITE_P(, QuantisedRun,
                         testing::Combine(testing::Range(std::size_t{0}, std::size(kQuantisedRunCases)),
                                          testing::Values("fp32", "bf16"), testing::Values("true", "false")));

// Weights from files are read twice and by several ranks. Ranks compare what they have read.
TEST(QuantisedWeights, AreTheSameOnAnyNumberOfRanks) {
  const std::filesystem::path golden = tests::source_dir() / "tests/golden/llama";
  std::optional<Trained> first;
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 3}) {
      const Trained trained = train_in_threads(
          golden / "recipe.toml",
          {fmt::format("training.gradient_accumulation_steps={}", 4 / ranks), fmt::format("zero.stage={}", stage),
           "training.freeze=*_proj.weight", "model.frozen_format=nf4"},
          ranks);
      if (!first) first = trained;
      expect_same(trained, *first, fmt::format("{} ranks, stage {}", ranks, stage));
    }
  // The result is as with weights that bitsandbytes quantised, whose offsets are torch's means up to a unit in the last
  // place.
  const Trained stored = train_in_threads(tests::source_dir() / "tests/golden/nf4/llama/recipe.toml", {}, 1);
  EXPECT_NEAR(std::stod(stored.loss_hex[0]), std::stod(first->loss_hex[0]), 1e-5);
}

std::string quantised_complaint(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    return error.what();
  }
  return {};
}

Job quantised_job(const std::vector<std::string>& sets) {
  std::vector<std::string> all = {"model.preset=tiny-llama", "data.seq_len=16", "training.max_steps=3"};
  all.insert(all.end(), sets.begin(), sets.end());
  const Recipe recipe = load_recipe(std::nullopt, all);
  return make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
}

TEST(QuantisedPlan, FrozenMatricesTakeFourBitsAndAnEighth) {
  const Job job = quantised_job({R"(training.freeze=["model.layers.1.*"])", "model.frozen_format=nf4"});
  const UnitLayout& unit = job.plan.layout.units[2];
  EXPECT_EQ(unit.padded(), 0u);
  EXPECT_EQ(unit.frozen.ranges.size(), 2u) << "norms";
  ASSERT_EQ(unit.quantised.ranges.size(), 7u);
  std::size_t blocks = 0;
  for (const auto& range : unit.quantised.ranges) {
    EXPECT_EQ(range.begin % 16384, 0u);
    blocks += (range.end - range.begin + 16383) / 16384;
  }
  EXPECT_EQ(unit.quantised.padded(), blocks * 16384);
  const Buffer& buffer = job.plan.buffers[static_cast<std::size_t>(job.plan.state_buffers[2].quantised)];
  EXPECT_EQ(buffer.bytes, aligned(blocks * 8456));
}

// Files whose config.json promises 4 bits must hold them.
TEST(QuantisedPlan, UnquantisedFilesAreNotQuantisedSilently) {
  const std::filesystem::path golden = tests::source_dir() / "tests/golden";
  const tests::ScratchFolder folder;
  std::filesystem::copy(golden / "llama/model/model.safetensors", folder.path() / "model.safetensors");
  std::filesystem::copy(golden / "nf4/llama/model/config.json", folder.path() / "config.json");
  const Recipe recipe = load_recipe(std::nullopt, std::vector<std::string>{"model.path=" + folder.path().string(),
                                                                           "data.seq_len=16", "training.max_steps=1"});
  EXPECT_THAT(quantised_complaint([&] {
                const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
                stored_weights(*job.model, folder.path());
              }),
              testing::AllOf(HasSubstr("q_proj.weight is F32"), HasSubstr("quantization_config")));
}

TEST(QuantisedPlan, AnEvaluationQuantisesTheCompleteModel) {
  const Recipe recipe = load_recipe(
      std::nullopt, std::vector<std::string>{"model.preset=tiny-llama", "data.seq_len=16", "model.frozen_format=nf4"});
  const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1), Purpose::evaluate);
  EXPECT_EQ(job.plan.layout.units[1].quantised.ranges.size(), 7u);
  EXPECT_EQ(job.model->trained_parameters(), 0u);
}

TEST(AdapterPath, ContradictsAdapterKindNone) {
  EXPECT_THAT(quantised_complaint([] {
                quantised_job({"adapter.kind=none", "adapter.path=/adapter"});
              }),
              HasSubstr("contradict each other"));
}

// A checkpoint stores quantised weights unchanged, and any stage can resume from it. Another format is refused.
TEST(QuantisedResume, ContinuesAsIfItHadNotStopped) {
  const SavedRun saved;
  const std::vector<std::string> more = {R"(training.freeze=["*.wte.*", "*.h.0.*", "*.h.1.mlp.c_fc.*"])",
                                         "model.frozen_format=nf4"};
  auto with = [&](const std::vector<std::string>& others) {
    auto all = more;
    all.insert(all.end(), others.begin(), others.end());
    return all;
  };
  std::filesystem::remove_all(saved.checkpoints());
  const auto straight = saved.run(1, saved.sets(1, more), 6);
  std::filesystem::remove_all(saved.checkpoints());
  saved.run(2, saved.sets(2, with({"zero.stage=3"})), 3, {3});
  const auto gone_on = saved.run(1, saved.sets(1, more), 6);
  EXPECT_EQ(gone_on.resumed, "step-00000003");
  EXPECT_EQ(gone_on.weights, straight.weights);
  EXPECT_TRUE(std::equal(gone_on.losses.begin(), gone_on.losses.end(), straight.losses.begin() + 3));
  EXPECT_THAT(quantised_complaint([&] { saved.run(1, saved.sets(1, with({"model.frozen_format=compute"})), 6); }),
              HasSubstr("model.frozen_format"));
}

}  // namespace
}  // namespace strata::runtime
